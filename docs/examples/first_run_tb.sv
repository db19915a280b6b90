// A first run of npu.v in a simulator of your own: a program of bringup.zip, on a memory that answers at once.
// What it takes is in docs/integration.md; a system of yours does the same over its own buses.
`timescale 1ns / 1ps

module first_run_tb;
  parameter BYTES = 16;                     // of a beat: beat_bytes in machine.json
  parameter ADDRESS_BITS = 40;              // address_bits there
  localparam CODE = 0, DATA = 'h10000, SIZE = 1 << 18;   // where program and data lie; both at multiples of 4096

  reg clk = 0, rst = 1;
  always #2 clk = !clk;

  // The memory: bursts are kept in the order in which they are asked for.
  reg [7:0] memory [0:SIZE - 1];
  reg [ADDRESS_BITS - 1:0] read_from [0:63], write_to [0:63];
  reg [7:0] read_length [0:63], write_length [0:63];
  reg [5:0] read_in = 0, read_out = 0, write_in = 0, write_out = 0, answered = 0;
  reg [7:0] read_beat = 0, write_beat = 0;

  wire irq, arvalid, awvalid, wvalid, wlast;
  wire [ADDRESS_BITS - 1:0] araddr, awaddr;
  wire [7:0] arlen, awlen;
  wire [8 * BYTES - 1:0] wdata;
  wire [BYTES - 1:0] wstrb;
  reg [8 * BYTES - 1:0] rdata;
  wire rvalid = read_in != read_out, wready = write_in != write_out, bvalid = write_out != answered;
  always @(negedge clk) for (int at = 0; at < BYTES; at++)
    rdata[8 * at +: 8] = memory[(read_from[read_out] + read_beat * BYTES + at) % SIZE];
  always @(posedge clk) if (!rst) begin
    if (arvalid) begin read_from[read_in] <= araddr; read_length[read_in] <= arlen; read_in <= read_in + 1; end
    if (awvalid) begin write_to[write_in] <= awaddr; write_length[write_in] <= awlen; write_in <= write_in + 1; end
    if (rvalid) begin
      read_beat <= read_beat == read_length[read_out] ? 0 : read_beat + 1;
      read_out <= read_out + (read_beat == read_length[read_out]);
    end
    if (wvalid && wready) begin
      for (int at = 0; at < BYTES; at++)
        if (wstrb[at]) memory[(write_to[write_out] + write_beat * BYTES + at) % SIZE] <= wdata[8 * at +: 8];
      write_beat <= wlast ? 0 : write_beat + 1;
      write_out <= write_out + wlast;
    end
    if (bvalid) answered <= answered + 1;
  end

  // The registers: one access after another.
  reg awv = 0, wv = 0, arv = 0;
  reg [11:0] address;
  reg [31:0] value;
  wire awr, wr, bv, arr, rv;
  wire [31:0] read_value;
  task write(input [11:0] to, input [31:0] what);
    begin
      @(negedge clk); address = to; value = what; awv = 1; wv = 1;
      while (awv || wv) begin
        @(posedge clk);
        if (awr) awv <= 0;
        if (wr) wv <= 0;
        @(negedge clk);
      end
      while (!bv) @(negedge clk);
      @(negedge clk);
    end
  endtask
  task read(input [11:0] from, output [31:0] what);
    begin
      @(negedge clk); address = from; arv = 1;
      while (arv) begin @(posedge clk); if (arr) arv <= 0; @(negedge clk); end
      while (!rv) @(negedge clk);
      what = read_value;
      @(negedge clk);
    end
  endtask

  npu machine (
    .clk(clk), .rst(rst), .irq(irq),
    .s_axi_awaddr(address), .s_axi_awprot(3'd0), .s_axi_awvalid(awv), .s_axi_awready(awr),
    .s_axi_wdata(value), .s_axi_wstrb(4'hf), .s_axi_wvalid(wv), .s_axi_wready(wr), .s_axi_bvalid(bv), .s_axi_bready(1'b1),
    .s_axi_araddr(address), .s_axi_arprot(3'd0), .s_axi_arvalid(arv), .s_axi_arready(arr),
    .s_axi_rdata(read_value), .s_axi_rvalid(rv), .s_axi_rready(1'b1),
    .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arvalid(arvalid), .m_axi_arready(1'b1),
    .m_axi_rid(1'b0), .m_axi_rdata(rdata), .m_axi_rresp(2'd0), .m_axi_rlast(read_beat == read_length[read_out]),
    .m_axi_rvalid(rvalid),
    .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awvalid(awvalid), .m_axi_awready(1'b1),
    .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
    .m_axi_bid(1'b0), .m_axi_bresp(2'd0), .m_axi_bvalid(bvalid));

  // Which program: +program=sum, and its numbers in bringup.json.
  reg [8 * 32:1] name;
  reg [7:0] expected [0:SIZE - 1];
  integer data_beats, write_start, output_beat, file, length, count, differing = 0, cycles = 0;
  reg [31:0] id, status;
  always @(posedge clk) cycles = cycles + 1;
  initial begin
    if (!$value$plusargs("program=%s", name) || !$value$plusargs("data_beats=%d", data_beats)
        || !$value$plusargs("write_start=%d", write_start) || !$value$plusargs("output=%d", output_beat))
      $fatal(1, "give +program=NAME +data_beats=N +write_start=N +output=N");
    file = $fopen($sformatf("%0s/code", name), "rb");
    length = $fread(memory, file, CODE);
    file = $fopen($sformatf("%0s/data", name), "rb");
    count = $fread(memory, file, DATA);
    file = $fopen($sformatf("%0s/expected", name), "rb");
    count = $fread(expected, file);
    repeat (4) @(negedge clk);
    rst = 0;
    read(12'h000, id);
    if (id != "NPUG") $fatal(1, "id reads as %h", id);
    write(12'h010, 4);                      // CLEAR
    write(12'h020, CODE);
    write(12'h024, 0);
    write(12'h028, length / 16);            // instructions
    write(12'h030, DATA);
    write(12'h034, 0);
    write(12'h038, data_beats);
    write(12'h03c, write_start);
    write(12'h044, 1);                      // the interrupt
    cycles = 0;
    write(12'h010, 1);                      // START
    while (!irq) @(negedge clk);
    read(12'h014, status);
    for (int at = 0; at < count; at++)
      if (memory[DATA + output_beat * BYTES + at] !== expected[at]) differing = differing + 1;
    $display("%0s: %0d cycles, status %h, %0d of %0d bytes differ", name, cycles, status, differing, count);
    $finish;
  end
  initial #4000000 $fatal(1, "no end after a million cycles");
endmodule
