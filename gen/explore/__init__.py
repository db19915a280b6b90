"""Search of a space of designs: points, what is measured of each, and the best trade-offs.

A *problem* (`gen.explore.evaluation.Problem`) says what a point's parameters mean: which measurements it needs, and
what objectives and constraints come out of them. `gen.explore.machines` is the one for integer machines. All else -
methods (`methods`), workers (`workers`), kept results (`ledger`), the loop (`search`) and reports - knows parameters,
objectives and reasons for infeasibility by their names only.

A search gives the same result however many workers there are and in whatever order they answer: points are chosen in
rounds, the next one after all of the last one are known, and in an order of their own.
"""
