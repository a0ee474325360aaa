/** What processes read from an API server, as the kernel counts it. */
import { runTool } from "../support/drivers/run_tool.ts";

/** Totals of the open connections of a process. */
export interface ApiTraffic {
  readonly connections: number;
  /** Bytes from the API server, with TLS. */
  readonly receivedBytes: number;
  /** Segments with data to it: requests, and updates of HTTP/2 windows. */
  readonly sentSegments: number;
}

/** Counts the connections of a process to a port. */
export async function apiTraffic(
  { pid, port }: { readonly pid: number; readonly port: string },
): Promise<ApiTraffic> {
  const args = ["-tinpHO", "state", "established", `dport = :${port}`];
  const lines = (await runTool("ss", args)).split("\n").filter((line) =>
    line.includes(`pid=${pid},`)
  );
  const sum = (field: string) =>
    lines.reduce((total, line) => {
      return total + Number(new RegExp(`\\b${field}:(\\d+)`).exec(line)?.[1] ?? 0);
    }, 0);
  const receivedBytes = sum("bytes_received");
  return { connections: lines.length, receivedBytes, sentSegments: sum("data_segs_out") };
}
