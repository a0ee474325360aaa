/**
 * Reads what `ipvsadm -L -n --rate --exact` prints: the rates of each virtual server, as the kernel
 * estimates them over the last seconds. Pure.
 *
 * ```
 * IP Virtual Server version 1.2.1 (size=4096)
 * Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS
 *   -> RemoteAddress:Port
 * TCP  10.96.0.1:443                       2       14       11     1204    88120
 *   -> 10.1.1.2:6443                       2       14       11     1204    88120
 * ```
 *
 * @module
 */
import { tryParseProtocol } from "../../lib/net/port.ts";
import type { ServerRates } from "../../lib/proxy/service_mode.ts";
import { type ServerKey, tryParseServer } from "./virtual_server.ts";

const FLAGS = { TCP: "-t", UDP: "-u", SCTP: "--sctp-service" } as const;
const SERVER = /^(TCP|UDP|SCTP)\s+(\S+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*$/;

/** Reads it in short steps. Lines that make no sense, and those of real servers, are passed over. */
export function* readServerRates(
  text: string,
): Generator<void, ReadonlyMap<ServerKey, ServerRates>> {
  const rates = new Map<ServerKey, ServerRates>();
  for (const line of text.split("\n")) {
    yield;
    const [, name = "", address = "", ...numbers] = SERVER.exec(line) ?? [];
    const protocol = tryParseProtocol(name);
    const key = protocol && tryParseServer(FLAGS[protocol], address);
    if (key === undefined) continue;
    const [connections = 0, packetsIn = 0, packetsOut = 0, bytesIn = 0, bytesOut = 0] = numbers
      .map(Number);
    rates.set(key, { connections, packetsIn, packetsOut, bytesIn, bytesOut });
  }
  return rates;
}
