"""What a store does to a layer's activations before they are in memory: one operation after the other, its *epilogue*.

A class each, in a file each, with all that the compiler asks of it (`StoreOp`); generic code iterates over a layer's
epilogue and names none of them. The room is the IR's and not a unit's, as every machine has operations of a store; what
only some machines have is known from the instruction set, by an operation's opcode and fields. Which sequences a store
can do at once is one rule, `gen.ir.epilogue.chain`.
"""
