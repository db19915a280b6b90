"""The configuration: what it refuses and why, presets, JSON, derived figures."""

import dataclasses
import hashlib
import json

import pytest

from cores.arch.stochastic import Circuit
from cores.config import ALL_PRESET_MACS, PRESET_MACS, ConfigError, NpuConfig, part_of


@pytest.mark.parametrize(("fields", "message"), [
    ({"ic_lanes": 12}, r"ic_lanes must be 4, 8, 16 or 32 \(the AXI data bus is 8 \* ic_lanes bits\), not 12"),
    ({"nnz_lanes": 3}, "nnz_lanes must be a power of two up to ic_lanes=16, not 3"),
    ({"nnz_lanes": 32}, "nnz_lanes must be a power of two up to ic_lanes=16, not 32"),
    ({"oc_lanes": 8}, "oc_lanes must be a power of two from ic_lanes=16 to 256, as a store writes whole channel"),
    ({"pixel_lanes": 3}, "pixel_lanes must be 1 or 2, not 3"),
    ({"select_fanin": 2}, "select_fanin must be a power of two from ic_lanes / nnz_lanes=4 to ic_lanes=16, not 2"),
    ({"select_fanin": 12}, "select_fanin must be a power of two"),
    ({"acc_width": 23}, r"acc_width must be in 24\.\.32, not 23"),
    ({"multiplier_width": 20}, "multiplier_width must be 18, 25 or 27, not 20"),
    ({"store_multipliers": 4}, "store_multipliers must be 1, 2 or 3, not 4"),
    ({"store_lanes": 16}, "store_lanes must be 0 or a power of two below ic_lanes=16, not 16"),
    ({"cycles_only": 2}, "cycles_only must be 0 or 1, not 2"),
    ({"store_lanes": 3}, "store_lanes must be 0 or a power of two below ic_lanes=16, not 3"),
    ({"ic_lanes": 4, "oc_lanes": 4, "nnz_lanes": 1, "gather": 1, "binary_rows": 2},
     "ic_lanes must be 8 or more with binary_rows, not 4"),
    ({"store_lanes": 2, "product": 1}, "store_lanes must be 0 with product, not 2"),
    ({"hard_block_registers": 0}, "hard_block_registers must be 1 with multipliers of 27 bits, not 0"),
    ({"hard_block_registers": 2, "multiplier_width": 18},
     "hard_block_registers must be 0 or 1, not 2"),
    ({"input_depth": 100}, r"input_depth must be a power of two in 256\.\.16384, not 100"),
    ({"acc_depth": 32}, r"acc_depth must be a power of two in 64\.\.4096, not 32"),
    ({"weight_depth": 256}, r"weight_depth must be a power of two in 512\.\.16384, not 256"),
    ({"side_depth": 513}, r"side_depth must be a power of two in 512\.\.16384, not 513"),
    ({"queue_depth": 2}, r"queue_depth must be 1, or a power of two in 4\.\.64, not 2"),
    ({"outstanding_reads": 1}, r"outstanding_reads must be a power of two in 2\.\.64, not 1"),
    ({"axi_prot": 8}, r"axi_prot must be in 0\.\.7, not 8"),
    ({"outstanding_writes": 128}, r"outstanding_writes must be a power of two in 2\.\.64, not 128"),
    ({"address_width": 30}, r"address_width must be in 32\.\.64, not 30"),
    ({"depthwise": 2}, "depthwise must be 0 or 1, not 2"),
    ({"gather": 1, "binary_rows": 3}, "binary_rows must be 0 or a power of two from 1 to oc_lanes=32, not 3"),
    ({"gather": 1, "binary_rows": 64}, "binary_rows must be 0 or a power of two from 1 to oc_lanes=32, not 64"),
    ({"binary_rows": 8}, "gather must be 1 with binary_rows: maps of signs are gathered, not 0"),
    ({"binary_engine": 1}, "binary_engine must be 0 without binary_rows, not 1"),
    ({"depthwise": 1, "pixel_lanes": 1}, "pixel_lanes must be 2 with depthwise, not 1"),
    ({"depthwise": 1, "oc_lanes": 64}, "oc_lanes must be at most 32 with depthwise, not 64"),
    ({"depthwise": 1, "nnz_lanes": 2}, "nnz_lanes must be a multiple of 4 with depthwise"),
    ({"depthwise": 1, "oc_lanes": 16, "nnz_lanes": 1}, "nnz_lanes must be a multiple of 2 with depthwise"),
    ({"depthwise": 1, "nnz_lanes": 2, "select_fanin": 8}, "nnz_lanes must be a multiple of 4 with depthwise"),
    ({"winograd": 3}, "winograd must be 0, 1 or 2, not 3"),
    ({"winograd": 2}, "multiplier_width must be 18 with winograd=2 and two pixel_lanes: .*, not 27"),
    ({"stochastic_rows": 3}, "stochastic_rows must be 0 or a power of two from 1 to oc_lanes=32, not 3"),
    ({"stochastic_bits": 1}, "stochastic_bits must be 0 without stochastic_rows, not 1"),
    ({"stochastic_circuit": 5}, "stochastic_circuit must be 0 without stochastic_rows, not 5"),
    ({"stochastic_rows": 8}, "stochastic_bits must be 1, 2, 4 or 8 with stochastic_rows, not 0"),
    ({"stochastic_rows": 8, "stochastic_bits": 1, "stochastic_circuit": 6},
     r"stochastic_circuit must be 0 \(xnor-mux\), 1 .*5 \(and-loop\), not 6"),
    ({"stochastic_rows": 8, "stochastic_bits": 2, "stochastic_circuit": 3},
     "stochastic_bits must be 1 with ugemm, whose bits depend on those before, not 2"),
    ({"stochastic_rows": 8, "stochastic_bits": 1, "winograd": 2, "pixel_lanes": 1},
     "stochastic_rows must be 0 with winograd=2, whose activations have 10 bits, not 8"),
    ({"stochastic_rows": 8, "stochastic_bits": 1, "gather": 1, "binary_rows": 8, "binary_engine": 1},
     "stochastic_rows must be 0 with binary_engine=1, which shares no sums, not 8"),
    ({"oc_lanes": 32.0}, r"oc_lanes must be an integer, not 32\.0"),
    ({"pixel_lanes": True}, "pixel_lanes must be an integer, not True"),
])
def test_refuses(fields, message):
    with pytest.raises(ConfigError, match=message):
        NpuConfig(**fields)


@pytest.mark.parametrize("macs", PRESET_MACS)
def test_preset(macs):
    config = NpuConfig.preset(macs)
    assert config.macs == macs
    assert NpuConfig.from_json(config.to_json()) == config
    assert config.weight_beats * config.beat_bytes == config.oc_lanes * config.nnz_lanes


@pytest.mark.parametrize("macs", [512, 1024])
def test_depthwise_keeps_the_lanes(macs):
    """By field and by feature, with eight binary lanes for each MAC: one machine has it and zeros among the weights."""
    plain = NpuConfig.preset(macs)
    assert (plain.ic_lanes, plain.select_fanin, plain.groups_dense) == (32, 16, 4)
    by_feature = NpuConfig.preset(macs, **plain.feature_fields(["depthwise", "binary"]))
    assert dataclasses.replace(by_feature, gather=0, binary_rows=0) == NpuConfig.preset(macs, depthwise=1)
    assert (by_feature.macs, by_feature.ic_lanes, by_feature.binary_macs) == (macs, 32, 8 * macs)
    assert (by_feature.own_taps, by_feature.groups_dense) == (4, 4)
    assert "ic_lanes" not in plain.feature_fields(["depthwise"])


@pytest.mark.parametrize("macs, banks, reads", [(64, 2, 3), (128, 2, 3), (256, 2, 3), (512, 2, 3), (1024, 4, 2)])
def test_depthwise_in_dense_lanes(macs, banks, reads):
    """The preset's lanes stay as they are: output lanes have four taps of their own channel."""
    plain, depthwise = NpuConfig.preset(macs, "dense"), NpuConfig.preset(macs, "dense", depthwise=1)
    assert dataclasses.replace(depthwise, depthwise=0, input_depth=plain.input_depth) == plain
    assert (plain.own_taps, plain.gathered_taps, plain.window_reads) == (0, 0, 1)
    assert (depthwise.own_taps, depthwise.gathered_taps, depthwise.window_taps) == (4, 0, 4)
    assert (depthwise.banks, depthwise.window_reads, depthwise.groups_alternate) == (banks, reads, False)
    assert depthwise.banks * depthwise.input_depth == plain.banks * plain.input_depth
    every_channel = NpuConfig.preset(256, depthwise=1)
    assert (every_channel.own_taps, every_channel.gathered_taps, every_channel.groups_alternate) == (0, 4, True)


def test_preset_of_another_size():
    with pytest.raises(ConfigError, match=r"macs must be one of 16, 32, .*, 1024 \(or give .*\), not 100"):
        NpuConfig.preset(100)


def test_widths_of_exact_winograd():
    config = NpuConfig(winograd=2, pixel_lanes=1)
    assert (config.activation_bits, config.weight_bits, config.entry_bits) == (10, 12, 160)
    assert config.weight_beats == 12 and NpuConfig(winograd=1).weight_beats == 8
    assert NpuConfig(winograd=2, multiplier_width=18).pixel_lanes == 2


def test_depthwise_keeps_the_buffers_bytes():
    plain, depthwise = NpuConfig.preset(256), NpuConfig.preset(256, depthwise=1)
    assert (plain.banks, depthwise.banks) == (2, 4)
    assert plain.banks * plain.input_depth == depthwise.banks * depthwise.input_depth


@pytest.mark.parametrize(("text", "message"), [
    ("{", "configuration is not JSON"),
    ("[]", "configuration must be a JSON object, not list"),
    ('{"lanes": 4}', "unknown configuration field 'lanes'; known: acc_depth"),
    (json.dumps({**NpuConfig().to_dict(), "oc_lanes": "32"}), "oc_lanes must be an integer, not '32'"),
    ("{}", "configuration without acc_depth, .*winograd; all fields must be there"),
    (json.dumps({name: value for name, value in NpuConfig().to_dict().items() if name != "gather"}),
     "configuration without gather; "),
    (f'{{"acc_width": 1{"0" * 5000}}}', "configuration is not JSON: Exceeds the limit"),
])
def test_refuses_json(text, message):
    with pytest.raises(ConfigError, match=message):
        NpuConfig.from_json(text)


def test_load_names_the_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**NpuConfig().to_dict(), "ic_lanes": 5}))
    with pytest.raises(ConfigError, match=r"config\.json: ic_lanes must be"):
        NpuConfig.load(path)
    path.write_text(" " * 100_000)
    with pytest.raises(ConfigError, match=r"config\.json: 100,000 bytes, where "):
        NpuConfig.load(path)
    with pytest.raises(ConfigError, match="missing"):
        NpuConfig.load(tmp_path / "missing")


def test_digest_tells_every_field_apart():
    config = NpuConfig()
    others = [dataclasses.replace(config, **change) for change in (
        {"oc_lanes": 64}, {"ic_lanes": 32}, {"nnz_lanes": 8}, {"pixel_lanes": 1}, {"select_fanin": 4},
        {"acc_width": 32}, {"input_depth": 1024}, {"acc_depth": 512}, {"queue_depth": 8}, {"depthwise": 1},
        {"winograd": 1}, {"table": 1}, {"product": 1}, {"limits": 1}, {"store_multipliers": 2}, {"maximum": 1},
        {"store_lanes": 2}, {"cycles_only": 1},
        {"stochastic_rows": 8, "stochastic_bits": 1},
        {"stochastic_rows": 8, "stochastic_bits": 1, "stochastic_circuit": 5},
        {"stochastic_rows": 8, "stochastic_bits": 2})]
    assert len({other.digest for other in [config, *others]}) == 1 + len(others)


def test_a_machine_without_a_later_unit_is_the_one_it_was():
    """Its file, and so its fingerprint, say nothing of the unit."""
    config = NpuConfig.preset(64)
    later = {"table", "product", "stochastic_rows", "stochastic_circuit", "stochastic_bits", "limits",
             "maximum"}
    assert later.isdisjoint(config.to_dict()) and NpuConfig.from_dict(config.to_dict()) == config
    assert NpuConfig.from_json(NpuConfig.preset(64, table=1).to_json()).table == 1
    assert NpuConfig.from_json(NpuConfig.preset(64, product=1).to_json()).product == 1
    streams = NpuConfig.preset(64, **NpuConfig.preset(64).feature_fields(["stochastic"]))
    assert (streams.stochastic_rows, streams.circuit, streams.stochastic_bits) == (4, Circuit.AND_LOOP, 1)
    assert NpuConfig.from_json(streams.to_json()) == streams


def test_multipliers_of_a_store_lane():
    """One is what every machine has: it is the machine without the field. Cycles of a pixel with another operand."""
    one, two, three = (NpuConfig.preset(64, store_multipliers=number) for number in (1, 2, 3))
    assert one == NpuConfig.preset(64) and "store_multipliers" not in one.to_dict()
    assert [config.residual_cycles for config in (one, two, three)] == [3, 2, 1]
    assert [config.own_stage for config in (one, two, three)] == [False, True, True]
    assert NpuConfig.preset(64, **one.feature_fields(["stages"])) == three and three.features == ["stages"]


def test_lanes_of_a_store():
    """They are no feature, so none takes them away."""
    plain = NpuConfig.preset(16)
    narrow = NpuConfig.preset(16, store_lanes=2)
    assert (plain.store_parts, narrow.store_parts) == (1, 4) and "store_lanes" not in plain.to_dict()
    assert narrow.features == [] and "store_lanes" not in narrow.feature_fields(["gather"])
    assert NpuConfig.from_json(narrow.to_json()) == narrow


def test_what_a_unit_computes_is_in_the_fingerprint():
    """By its revision, in machines that have it alone."""
    def of_file(config: NpuConfig) -> int:
        return int.from_bytes(hashlib.sha256(config.to_json().encode()).digest()[:4], "little")

    plain = NpuConfig.preset(64)
    signs = NpuConfig.preset(64, **plain.feature_fields(["binary"]))
    assert plain.digest == of_file(plain) and signs.digest != of_file(signs)


@pytest.mark.parametrize("fields, bits", [
    ({}, 16), ({"ic_lanes": 32, "nnz_lanes": 1}, 17), ({"ic_lanes": 32, "nnz_lanes": 4}, 18)])
def test_counts_fit_what_is_added(fields: dict[str, int], bits: int):
    """Of all bits of an entry, times 128, with a sign."""
    config = NpuConfig(**{"oc_lanes": 32, "ic_lanes": 16, "nnz_lanes": 1, **fields}, gather=1, binary_rows=2)
    assert config.sum_bits == max(bits, config.array_sum_bits)
    assert config.binary_bits * 128 < 1 << config.sum_bits - 1


def test_windows_of_the_lanes():
    config = NpuConfig(select_fanin=8)
    assert [config.window_base(lane) for lane in range(4)] == [0, 0, 8, 8]
    assert json.loads(config.to_json())["select_fanin"] == 8


def test_features_by_name():
    fields = NpuConfig.preset(256).feature_fields(["depthwise", "binary"])
    assert fields == {"depthwise": 1, "local_store": 0, "gather": 1, "binary_rows": 8, "winograd": 0, "table": 0,
                      "product": 0, "stochastic_rows": 0, "stochastic_circuit": 0, "stochastic_bits": 0,
                      "rows": 0, "turn": 0, "store_multipliers": 0, "maximum": 0, "int4": 0, "limits": 0}
    assert set(fields) <= {field.name for field in dataclasses.fields(NpuConfig)}
    with pytest.raises(ConfigError, match="no feature 'speed'; there are depthwise, "):
        NpuConfig().feature_fields(["speed"])


@pytest.mark.parametrize("fields, reason", [
    ({"pixel_lanes": 0}, "pixel_lanes must be 1 or 2, not 0"),
    ({"pixel_lanes": "2"}, "pixel_lanes must be an integer, not '2'"),
    ({"oc_lanes": 8, "depthwise": 1}, "oc_lanes must be a power of two"),
    ({"ic_lanes": 0, "depthwise": 1}, "ic_lanes must be 4, 8, 16 or 32"),
])
def test_a_preset_with_lanes_that_cannot_be(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        NpuConfig.preset(64, **fields)


def test_part_of():
    """A unit's part is taken by machines that have it; two in one place are a mistake of whoever registers them."""
    parts = {"gather": int, "winograd": float}
    assert [part_of(NpuConfig.preset(16, **fields), str, parts) for fields in ({}, {"gather": 1}, {"winograd": 1})] == [
        str, int, float]
    with pytest.raises(AssertionError, match="in the place of str"):
        part_of(NpuConfig.preset(16, gather=1, winograd=1), str, parts)


@pytest.mark.parametrize("macs", [macs for macs in ALL_PRESET_MACS if macs >= PRESET_MACS[0]])
def test_presets_for_dense_networks_have_their_macs_in_lanes_that_do_not_choose_from_all(macs: int):
    dense = NpuConfig.preset(macs, "dense")
    assert dense.macs == macs
    assert dense.nnz_lanes * dense.select_fanin == dense.ic_lanes       # each lane has channels of its own
    if macs in PRESET_MACS:
        sparse = NpuConfig.preset(macs)
        # A lane that is alone has all channels.
        assert (sparse == dense) if macs == 16 else dense.select_fanin < sparse.select_fanin


def test_a_preset_is_for_something_that_there_is():
    with pytest.raises(ConfigError, match="for sparse or dense or tiny, not for 'quick'"):
        NpuConfig.preset(256, "quick")
    with pytest.raises(ConfigError, match="one of 16, .*, 4096 with --for dense .--for tiny has it, or"):
        NpuConfig.preset(8, "dense")
    with pytest.raises(ConfigError, match="--for dense has it"):
        NpuConfig.preset(2048)


@pytest.mark.parametrize("macs", [4, 8, 16])
def test_presets_for_small_devices_are_narrow(macs: int):
    tiny = NpuConfig.preset(macs, "tiny")
    assert (tiny.macs, tiny.beat_bits, tiny.store_parts) == (macs, 32, 4)
    assert NpuConfig.from_json(tiny.to_json()) == tiny and tiny.features == []
