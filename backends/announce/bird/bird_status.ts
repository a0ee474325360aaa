/**
 * Reads what BIRD says of its sessions and routes. Pure.
 *
 * @module
 */
import { type Cidr, tryParseCidr } from "../../../lib/net/cidr.ts";
import {
  type BgpPeer,
  type BgpSessionFigures,
  hasPassword,
} from "../../../lib/routing/bgp_plan.ts";
import type { BirdLine } from "./bird_control.ts";
import { peerOf } from "./bird_config.ts";

/** The session with a peer. */
export interface BgpSession extends BgpSessionFigures {
  /** When the state began, in the local time of the machine. */
  readonly since: string;
  /** The last error in BIRD's words, e.g. `Socket: Connection refused`. Absent while established. */
  readonly lastError?: string;
  /** The most prefixes that the peer may send; absent if none are accepted. */
  readonly limit?: number;
  /** The peer sent more than {@linkcode limit} prefixes, so the session was shut down. */
  readonly isShutDown: boolean;
  /** The state of liveness detection, e.g. `Up`; absent without BFD. */
  readonly bfd?: string;
}

const PROTOCOL = 1002;
const DETAIL = 1006;

/** Reads `show protocols all` and `show bfd sessions`. */
export function parseSessions(
  protocols: readonly BirdLine[],
  bfd: readonly BirdLine[] = [],
): readonly BgpSession[] {
  const liveness = parseLiveness(bfd);
  const found: { readonly head: string; readonly details: string[] }[] = [];
  for (const { code, text } of protocols) {
    if (code === PROTOCOL) found.push({ head: text, details: [] });
    else if (code === DETAIL) found.at(-1)?.details.push(text.trim());
  }
  return found.flatMap(({ head, details }) => {
    // peer_tor_1  BGP  ---  start  2026-11-24 18:20:25  Active  Socket: Connection refused
    const [name = "", kind, , , day = "", time = ""] = head.trim().split(/\s+/);
    const peer = peerOf(name);
    if (kind !== "BGP" || peer === undefined) return [];
    return [sessionOf({ peer, since: `${day} ${time}` }, details, liveness)];
  });
}

function sessionOf(
  base: Pick<BgpSession, "peer" | "since">,
  details: readonly string[],
  liveness: ReadonlyMap<string, string>,
): BgpSession {
  const field = (label: string) =>
    details.find((line) => line.startsWith(`${label}:`))?.slice(label.length + 1).trim();
  // A session with two families has two lines.
  const routes = (pattern: RegExp) =>
    details.filter((line) => line.startsWith("Routes:"))
      .reduce((sum, line) => sum + Number(pattern.exec(line)?.[1] ?? 0), 0);
  // Columns: received, rejected, filtered, ignored, accepted.
  const [, rejected = "0", filtered = "0"] = field("Import updates")?.split(/\s+/) ?? [];
  const limit = field("Receive limit");
  const lastError = field("Last error");
  const bfd = liveness.get(field("Neighbor address") ?? "");
  return {
    ...base,
    state: field("BGP state") ?? "Down",
    ...(lastError === undefined ? {} : { lastError }),
    imported: routes(/(\d+) imported/),
    exported: routes(/(\d+) exported/),
    refusedUpdates: Number(rejected) + Number(filtered),
    ...(limit === undefined ? {} : { limit: Number.parseInt(limit) }),
    isShutDown: field("BGP state") === "Down" && lastError?.includes("limit exceeded") === true,
    ...(bfd === undefined ? {} : { bfd }),
  };
}

/** States by the address of the peer. */
function parseLiveness(lines: readonly BirdLine[]): ReadonlyMap<string, string> {
  const states = new Map<string, string>();
  for (const { text } of lines) {
    // 192.0.2.2  eth0  Up  2026-11-24 18:20:46  0.300  0.900
    const [, address, state] = /^([\da-f.:]+)\s+\S+\s+(Up|Down|Init|AdminDown)\s/.exec(text) ?? [];
    if (address !== undefined && state !== undefined) states.set(address, state);
  }
  return states;
}

/** Reads the prefixes of `show route …`, each once. */
export function parsePrefixes(lines: readonly BirdLine[]): ReadonlySet<Cidr> {
  const found = lines.flatMap(({ text }) => {
    const [first = ""] = /^\S+\/\d+(?=\s)/.exec(text) ?? [];
    return tryParseCidr(first) ?? [];
  });
  return new Set(found);
}

/** The last errors that have a likely cause or a remedy. The first pattern that matches counts. */
const REMEDIES: readonly (readonly [pattern: RegExp, words: (peer: BgpPeer) => string])[] = [
  [
    /Connection refused/,
    ({ port }) => `the peer runs no BGP daemon on port ${port}, or does not expect this node`,
  ],
  [
    /No route to host|Network is unreachable/,
    ({ address }) => `${address} does not answer; check the address and the network`,
  ],
  [
    /Hold timer expired/,
    ({ holdTimeSeconds }) =>
      `nothing was received for ${holdTimeSeconds} s: the peer or the network has failed`,
  ],
  [/BFD session down/, () => "BFD noticed that the peer or the network has failed"],
  [/Administrative shutdown/, () => "the administrator of the peer shut the session down"],
  [/Bad peer AS/, ({ as }) => `one side expects another AS; this node expects ${as} of the peer`],
  [
    /No listening socket/,
    ({ localAddress }) =>
      `the address ${
        localAddress ?? "of this node"
      } is missing, or another BGP daemon uses the port`,
  ],
  [
    /Neighbor lost/,
    ({ address }) =>
      `${address} is on no network of this node; a distant peer needs a multihop TTL`,
  ],
];

/** Describes a session for users: its state, the last error and the likely cause. */
export function describeSession(session: BgpSession, peer: BgpPeer): string {
  const { bfd, isShutDown, lastError, limit, since, state } = session;
  if (isShutDown) {
    return `shut down since ${since}: the peer sent more than ${limit} prefixes`;
  }
  if (state === "Established") {
    const liveness = peer.bfd && bfd !== "Up" ? `, BFD is ${bfd?.toLowerCase() ?? "not used"}` : "";
    return `established since ${since}${liveness}`;
  }
  const head = `${state === "Down" ? "down" : `trying (${state})`} since ${since}`;
  if (lastError !== undefined) {
    const remedy = REMEDIES.find(([pattern]) => pattern.test(lastError))?.[1](peer);
    return `${head}: ${lastError}${remedy === undefined ? "" : `; ${remedy}`}`;
  }
  if (state === "Down") return head;
  // The kernel drops packets with a wrong TCP-MD5 signature, so neither side sees an error.
  const cause = hasPassword(peer)
    ? "the passwords may differ, or a firewall may drop port"
    : "a firewall may drop port";
  return `${head}: no answer from ${peer.address}; ${cause} ${peer.port}`;
}
