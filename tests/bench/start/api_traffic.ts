/**
 * The traffic with the API server, as the kernel counts it.
 *
 * @module
 */
import { runTool } from "../../support/drivers/run_tool.ts";

/** Totals of the connections that are open. */
export interface ApiTraffic {
  /** Bytes from the API server, with TLS. */
  readonly receivedBytes: number;
  /** Segments with data to it: requests, and updates of HTTP/2 windows. */
  readonly sentSegments: number;
}

/** Counts the connections of this network namespace to a port of the loopback address. */
export async function apiTraffic(port: string): Promise<ApiTraffic> {
  const text = await runTool("ss", ["-tinH", "state", "established", `dport = :${port}`]);
  const sum = (field: string) =>
    text.matchAll(new RegExp(`\\b${field}:(\\d+)`, "g"))
      .reduce((total, [, value]) => total + Number(value), 0);
  return { receivedBytes: sum("bytes_received"), sentSegments: sum("data_segs_out") };
}
