/**
 * The BGP protocol of one peer in BIRD's configuration. Pure.
 *
 * @module
 */
import { type IpAddress, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import { BGP_PORT, type BgpPeer, type BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import { exportFilterOf, importFilterOf } from "./bird_filters.ts";
import { FAMILY_DIGIT, passwordOf, protocolOf } from "./bird_text.ts";

/** Renders a peer. Throws a RangeError with the field and value that BIRD would refuse. */
export function peerLines(
  plan: BgpPlan,
  peer: BgpPeer,
  { isShutDown }: { readonly isShutDown: boolean },
): string[] {
  checkPeer(plan, peer);
  const settings = [
    ...(isShutDown ? ["disabled;"] : []),
    localLine(plan, peer),
    `neighbor ${peer.address} port ${peer.port} as ${peer.as};`,
    peer.multihopTtl === undefined ? "direct;" : `multihop ${peer.multihopTtl};`,
    ...(isStrict(plan, peer) ? ["strict bind on;"] : []),
    ...(peer.passwordFile === undefined ? [] : [`password ${passwordOf(peer.name)};`]),
    `hold time ${peer.holdTimeSeconds};`,
    // BIRD's own values, up to 5 minutes, are those of a router with a thousand peers.
    "connect delay time 1;",
    "connect retry time 10;",
    "error wait time 2, 30;",
    `bfd ${peer.bfd ? "on" : "off"};`,
    ...restartLines(peer),
    ...(peer.role === "reflector-client" ? ["rr client;"] : []),
    ...(peer.role === "reflector-client" && peer.reflectorClusterId !== undefined
      ? [`rr cluster id ${peer.reflectorClusterId};`]
      : []),
    ...channelLines(plan, peer),
  ];
  return [`protocol bgp ${protocolOf(peer.name)} {`, ...settings.map((line) => `  ${line}`), "}"];
}

/** The configuration is one text, so a value that BIRD refuses would stop all other peers. */
function checkPeer({ localAs }: BgpPlan, peer: BgpPeer): void {
  const { address, as, holdTimeSeconds, localAddress, name, role } = peer;
  if (role === "reflector-client" && as !== localAs) {
    throw new RangeError(
      `Cannot reflect routes to peer ${name} with AS ${as}: expected the node's AS ${localAs}`,
    );
  }
  if (holdTimeSeconds !== 0 && !(holdTimeSeconds >= 3 && holdTimeSeconds <= 65_535)) {
    throw new RangeError(
      `Cannot use hold time ${holdTimeSeconds} of peer ${name}: expected 0 or 3 to 65535 seconds`,
    );
  }
  if (localAddress !== undefined && ipFamilyOf(localAddress) !== ipFamilyOf(address)) {
    throw new RangeError(
      `Cannot reach peer ${name} at ${address} from ${localAddress}: ` +
        "expected two addresses of one family",
    );
  }
  const why = "link-local addresses belong to one interface; use another address of";
  if (isLinkLocal(address)) {
    throw new RangeError(`Cannot reach peer ${name} at ${address}: ${why} the peer`);
  }
  if (localAddress !== undefined && isLinkLocal(localAddress)) {
    throw new RangeError(`Cannot reach peer ${name} from ${localAddress}: ${why} this node`);
  }
}

/** BIRD refuses those of IPv6 without an interface. A Node may have such an address. */
function isLinkLocal(address: IpAddress): boolean {
  return /^fe[89ab]/.test(address);
}

/**
 * Whether BIRD listens at the local address alone, so that the port stays free at others. One socket
 * for all addresses would take the port of each, and the session would never start.
 */
function isStrict({ peers }: BgpPlan, peer: BgpPeer): boolean {
  return peers.every((other) =>
    other.localAddress !== undefined ||
    listeningPort(other) !== listeningPort(peer) ||
    ipFamilyOf(other.address) !== ipFamilyOf(peer.address)
  );
}

/** Nodes expect each other at one port, so the node listens on the port at which it calls them. */
function listeningPort({ port, role }: BgpPeer): number {
  return role === "external" ? BGP_PORT : port;
}

function localLine({ localAs }: BgpPlan, peer: BgpPeer): string {
  const address = peer.localAddress === undefined ? [] : [peer.localAddress];
  return ["local", ...address, `port ${listeningPort(peer)}`, `as ${localAs};`].join(" ");
}

function restartLines({ gracefulRestartSeconds }: BgpPeer): string[] {
  return gracefulRestartSeconds === undefined
    ? ["graceful restart off;"]
    : ["graceful restart on;", `graceful restart time ${gracefulRestartSeconds};`];
}

function channelLines(plan: BgpPlan, peer: BgpPeer): string[] {
  const family = ipFamilyOf(peer.address);
  const digit = FAMILY_DIGIT[family];
  const importFilter = importFilterOf(plan, peer);
  return [
    `ipv${digit} {`,
    ...(importFilter === undefined ? ["  import none;"] : [
      `  import filter ${importFilter};`,
      // A changed filter then applies to what the peer has sent already. Without the table BIRD
      // asks the peer to send it again, and FRR 8.4 does not answer.
      "  import table on;",
      `  receive limit ${plan.imports.limitPerPeer} action disable;`,
    ]),
    `  export filter ${exportFilterOf(plan, peer)};`,
    ...(peer.nextHopSelf ? ["  next hop self;"] : []),
    ...(peer.multihopTtl === undefined ? [] : [`  igp table connected${digit};`]),
    "};",
    ...(peer.otherNextHop === undefined ? [] : [
      `ipv${FAMILY_DIGIT[family === "IPv4" ? "IPv6" : "IPv4"]} {`,
      // What is accepted is configured for the family of the session.
      "  import none;",
      `  export filter ${exportFilterOf(plan, peer)};`,
      `  next hop address ${peer.otherNextHop};`,
      "};",
    ]),
  ];
}
