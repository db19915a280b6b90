"""Reports to look at: a document of what is known of a model on a machine, and the page that draws it."""
