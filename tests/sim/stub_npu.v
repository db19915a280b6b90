// A copier with the ports and registers of the NPU: tests the simulation's memory, driver and checks without the machine.
//
// START copies the data region's first `write_start` beats behind themselves, 16 beats at a time. The timeout register
// picks a fault to commit (`BUG_...`). BEAT_BYTES, ADDRESS_BITS, DIGEST, LANES and COUNTERS are defined by the test.
`define BUG_CROSSING 1
`define BUG_UNSTABLE_READ 2
`define BUG_EARLY_LAST 3
`define BUG_NO_LAST 4
`define BUG_UNSTABLE_WRITE 5
`define BUG_SIZE 6
`define BUG_UNFINISHED 7
`define BUG_ENDLESS 8
`define BUG_TRACE 9
`define BUG_STRAY 10
`define BUG_OVERWRITE 11

module npu (
    input clk, input rst, output irq,
    input [11:0] s_axi_awaddr, input [2:0] s_axi_awprot, input s_axi_awvalid, output s_axi_awready,
    input [31:0] s_axi_wdata, input [3:0] s_axi_wstrb, input s_axi_wvalid, output s_axi_wready,
    output [1:0] s_axi_bresp, output s_axi_bvalid, input s_axi_bready,
    input [11:0] s_axi_araddr, input [2:0] s_axi_arprot, input s_axi_arvalid, output s_axi_arready,
    output [31:0] s_axi_rdata, output [1:0] s_axi_rresp, output s_axi_rvalid, input s_axi_rready,
    output m_axi_arid, output [`ADDRESS_BITS-1:0] m_axi_araddr, output [7:0] m_axi_arlen, output [2:0] m_axi_arsize,
    output [1:0] m_axi_arburst, output [3:0] m_axi_arcache, output [2:0] m_axi_arprot, output m_axi_arvalid,
    input m_axi_arready, input m_axi_rid, input [8*`BEAT_BYTES-1:0] m_axi_rdata, input [1:0] m_axi_rresp,
    input m_axi_rlast, input m_axi_rvalid, output m_axi_rready,
    output m_axi_awid, output [`ADDRESS_BITS-1:0] m_axi_awaddr, output [7:0] m_axi_awlen, output [2:0] m_axi_awsize,
    output [1:0] m_axi_awburst, output [3:0] m_axi_awcache, output [2:0] m_axi_awprot, output m_axi_awvalid,
    input m_axi_awready, output [8*`BEAT_BYTES-1:0] m_axi_wdata, output [`BEAT_BYTES-1:0] m_axi_wstrb,
    output m_axi_wlast, output m_axi_wvalid, input m_axi_wready, input m_axi_bid, input [1:0] m_axi_bresp,
    input m_axi_bvalid, output m_axi_bready,
    output [3:0] trace_load_state, output [23:0] trace_load_index, output [3:0] trace_compute_state,
    output [23:0] trace_compute_index, output [3:0] trace_store_state, output [23:0] trace_store_index,
    output [23:0] trace_fetch_index, output trace_fetch_waiting, output [15:0] trace_stores, output trace_halt
);
    localparam IDLE = 0, REQUEST = 1, READ = 2, WRITE = 3, ANSWER = 4;

    reg [2:0] state = IDLE;
    reg done = 0, error = 0;
    reg [3:0] code = 0;
    reg [31:0] cycles = 0, read_beats = 0, write_beats = 0, position = 0;
    reg [8*`BEAT_BYTES-1:0] buffer [0:15];
    reg [4:0] count = 0;
    reg address_sent = 0;
    reg flip = 0;

    // Registers.
    reg [31:0] file [0:31];
    reg have_address = 0, have_data = 0, answered = 0, read_answer = 0;
    reg [11:0] write_address = 0;
    reg [31:0] write_data = 0, read_value = 0;
    wire [31:0] data_low = file['h30 / 4], write_start = file['h3C / 4], bug = file['h40 / 4];
    wire [`ADDRESS_BITS-1:0] base = {file['h34 / 4][`ADDRESS_BITS-33:0], data_low};
    wire [`ADDRESS_BITS-1:0] program_base = {file['h24 / 4][`ADDRESS_BITS-33:0], file['h20 / 4]};
    wire start = have_address && have_data && !answered && write_address == 'h10 && write_data[0];
    assign s_axi_awready = !have_address, s_axi_wready = !have_data;
    assign s_axi_bvalid = answered, s_axi_bresp = 0;
    assign s_axi_arready = !read_answer;
    assign s_axi_rvalid = read_answer, s_axi_rresp = 0, s_axi_rdata = read_value;

    integer i;
    initial for (i = 0; i < 32; i = i + 1) file[i] = 0;

    always @(posedge clk) begin
        if (s_axi_awvalid && s_axi_awready) begin have_address <= 1; write_address <= s_axi_awaddr; end
        if (s_axi_wvalid && s_axi_wready) begin have_data <= 1; write_data <= s_axi_wdata; end
        if (have_address && have_data && !answered) begin
            answered <= 1;
            if (write_address == 'h10 && write_data[2]) begin done <= 0; error <= 0; end
            else file[write_address[6:2]] <= write_data;
        end
        if (answered && s_axi_bready) begin answered <= 0; have_address <= 0; have_data <= 0; end
        if (s_axi_arvalid && s_axi_arready) begin
            read_answer <= 1;
            case (s_axi_araddr)
                'h00: read_value <= 32'h4E505547;
                'h04: read_value <= `VERSION;
                'h08: read_value <= `DIGEST;
                'h0C: read_value <= `LANES;
                'h14: read_value <= {29'b0, error, done, state != IDLE};
                'h18: read_value <= {28'b0, code};
                'h80: read_value <= cycles;
                'h98: read_value <= read_beats;
                'ha0: read_value <= write_beats;
                default: read_value <= 0;
            endcase
        end
        if (read_answer && s_axi_rready) read_answer <= 0;

        // The copier.
        flip <= !flip;
        if (state != IDLE) cycles <= cycles + 1;
        if (m_axi_rvalid && m_axi_rready) read_beats <= read_beats + 1;
        if (m_axi_wvalid && m_axi_wready) write_beats <= write_beats + 1;
        case (state)
            IDLE: if (start) begin
                state <= REQUEST; done <= 0; error <= 0; code <= 0;
                position <= 0; cycles <= 0; read_beats <= 0; write_beats <= 0;
            end
            REQUEST: if (m_axi_arready && bug != `BUG_ENDLESS) begin state <= READ; count <= 0; end
            READ: if (m_axi_rvalid) begin
                buffer[count[3:0]] <= m_axi_rdata;
                count <= count + 1;
                if (m_axi_rresp != 0) begin error <= 1; code <= m_axi_rresp == 2 ? 4 : 5; end
                if (m_axi_rlast) begin state <= WRITE; count <= 0; address_sent <= 0; end
            end
            WRITE: begin
                if (m_axi_awvalid && m_axi_awready) address_sent <= 1;
                if (m_axi_wvalid && m_axi_wready) count <= count + 1;
                if ((address_sent || m_axi_awready) && (count == 16 || (count == 15 && m_axi_wvalid && m_axi_wready))) begin
                    state <= ANSWER;
                    if (bug == `BUG_UNFINISHED) begin state <= IDLE; done <= 1; end
                end
            end
            ANSWER: if (m_axi_bvalid) begin
                position <= position + 16;
                if (m_axi_bresp != 0) begin error <= 1; code <= m_axi_bresp == 2 ? 6 : 7; end
                if (error || m_axi_bresp != 0) begin state <= IDLE; error <= 1; end
                else if (position + 16 >= write_start) begin state <= IDLE; done <= 1; end
                else state <= REQUEST;
            end
        endcase
        if (rst) begin
            state <= IDLE; done <= 0; error <= 0; have_address <= 0; have_data <= 0; answered <= 0; read_answer <= 0;
            for (i = 0; i < 32; i = i + 1) file[i] <= 0;
        end
    end

    assign irq = (done || error) && state == IDLE && file['h44 / 4][0];
    assign m_axi_arvalid = state == REQUEST && bug != `BUG_ENDLESS;
    assign m_axi_araddr = base + (position + (bug == `BUG_UNSTABLE_READ && flip)) * `BEAT_BYTES
                          + (bug == `BUG_CROSSING ? 4096 - `BEAT_BYTES : 0);
    assign m_axi_arlen = 15, m_axi_arid = 0, m_axi_arburst = 1, m_axi_arcache = 3, m_axi_arprot = 0;
    assign m_axi_arsize = bug == `BUG_SIZE ? 0 : $clog2(`BEAT_BYTES);
    assign m_axi_rready = state == READ;
    assign m_axi_awvalid = state == WRITE && !address_sent;
    assign m_axi_awaddr = bug == `BUG_STRAY ? program_base : bug == `BUG_OVERWRITE ? base : base + (write_start + position) * `BEAT_BYTES;
    assign m_axi_awlen = 15, m_axi_awid = 0, m_axi_awburst = 1, m_axi_awcache = 3, m_axi_awprot = 0;
    assign m_axi_awsize = $clog2(`BEAT_BYTES);
    assign m_axi_wvalid = state == WRITE && count < 16 && !(bug == `BUG_UNSTABLE_WRITE && flip);
    assign m_axi_wdata = buffer[count[3:0]];
    assign m_axi_wstrb = ~0;
    assign m_axi_wlast = bug == `BUG_EARLY_LAST ? count == 14 : count == 15 && bug != `BUG_NO_LAST;
    assign m_axi_bready = state == ANSWER;
    assign trace_load_state = state == READ ? 1 : state == REQUEST ? 6 : 0;
    assign trace_load_index = bug == `BUG_TRACE ? 1000 : 0;
    assign trace_compute_state = 0, trace_compute_index = 0;
    assign trace_store_state = state == WRITE ? 1 : state == ANSWER ? 5 : 0;
    assign trace_store_index = 1;
    assign trace_fetch_index = 0, trace_fetch_waiting = 0, trace_stores = 0, trace_halt = 0;
endmodule
