"""What goes to a board: programs as the driver reads them, and the files around them."""
