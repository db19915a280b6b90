"""The row unit: Softmax and normalisations over the channels of a pixel, in the pool unit's place."""
