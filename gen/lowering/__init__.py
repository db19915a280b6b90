"""From mapped layers to instructions.

`placed.PlacedGraph` says where everything lies, `lower.lower` goes through the steps; how the output tiles of a layer
are made is its mapping's business (`gen.mapping`), in terms of `tiles.Tile` (COMPUTEs), `chunks.Chunks` and
`weights.Weights` (loads) and `stores.Stores`.

Order of the program. Each output tile (one STORE) is emitted as

    for each chunk:  LOAD_ACT, COMPUTE, LOAD_WGT        (COMPUTEs; one POOL for a pooled tile)
    then, for the tile before it:  STORE, LOAD_SIDE

so that the load queue fetches a tile ahead, and the side data of a STORE never delays what the array needs next.

Why it cannot hang. The order is one in which the instructions could run one after the other, rings aside: every token
is posted by an instruction further up (the emitter asserts it), and the dispatcher goes through the program in this
order, so the first unfinished instruction is always at the head of its queue with its tokens there. Rings:

* LOAD_WGT may stand still while the weight ring is full. The ring then holds weights of COMPUTEs that are further up or
  its own, all of which have their activations: a COMPUTE's weights follow its activations. Where weights are fetched
  ahead of activations (those wait for a STORE), they are at most a quarter of the ring, and so fit once those COMPUTEs
  are done.
* LOAD_SIDE may stand still while the side ring is full. Its STORE is further up, and all that the STORE's tile needs is
  issued: side data follow all activations and weights of their tile.
* A LOAD that waits for a COMPUTE or STORE of an earlier tile is preceded by that tile's STORE and side data, and a
  POOL's STORE and side data follow it at once: the pool unit stands still without them.
"""
