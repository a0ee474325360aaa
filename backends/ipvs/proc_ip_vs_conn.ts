/**
 * Reads `/proc/net/ip_vs_conn`, the connections that IPVS has. Pure.
 *
 * ```
 * Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData
 * TCP 0A000001 A1B2 0A600001 0050 0A010102 1F90 ESTABLISHED     899
 * ```
 *
 * @module
 */
import { type IpAddress, tryParseIpAddress } from "../../lib/net/ip_address.ts";
import { type Protocol, tryParseProtocol } from "../../lib/net/port.ts";

/** The file. */
export const IP_VS_CONN_FILE = "/proc/net/ip_vs_conn";

/** A connection and where it was sent. */
export interface IpvsConnection {
  readonly protocol: Protocol;
  readonly from: IpAddress;
  readonly fromPort: number;
  readonly to: IpAddress;
  readonly toPort: number;
  readonly endpoint: IpAddress;
  readonly endpointPort: number;
  /** As the kernel prints it, e.g. `SYN_RECV`. */
  readonly state: string;
}

const ADDRESS = String.raw`\[?([0-9A-Fa-f:]+)\]?\s+([0-9A-F]{4})`;
const LINE = new RegExp(
  String.raw`^(TCP|UDP|SCTP)\s+${ADDRESS}\s+${ADDRESS}\s+${ADDRESS}\s+(\S+)\s+\d+`,
);

/** Parses one line; `undefined` for the header and unreadable lines. */
export function parseIpvsConnection(line: string): IpvsConnection | undefined {
  const [, word, fromIp, fromPort, toIp, toPort, endpointIp, endpointPort, state] =
    LINE.exec(line) ?? [];
  const protocol = word === undefined ? undefined : tryParseProtocol(word);
  const [from, to, endpoint] = [fromIp, toIp, endpointIp].map(addressOf);
  if (!protocol || !from || !to || !endpoint || state === undefined) return undefined;
  const [a = 0, b = 0, c = 0] = [fromPort, toPort, endpointPort].map((hex) =>
    parseInt(hex ?? "", 16)
  );
  return { protocol, from, fromPort: a, to, toPort: b, endpoint, endpointPort: c, state };
}

function addressOf(text = ""): IpAddress | undefined {
  if (text.includes(":")) return tryParseIpAddress(text);
  if (text.length !== 8) return undefined;
  const octets = text.match(/../g)?.map((hex) => parseInt(hex, 16)) ?? [];
  return tryParseIpAddress(octets.join("."));
}
