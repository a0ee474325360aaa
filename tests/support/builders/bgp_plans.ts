import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type {
  AnnouncedPrefix,
  BgpImports,
  BgpPeer,
  BgpPlan,
  ImportedPrefix,
  PeerImports,
} from "../../../lib/routing/bgp_plan.ts";

/** A peer on a network of the node, by its address; further fields as in the plan. */
export function bgpPeer(
  name: string,
  address: string,
  fields: Partial<Omit<BgpPeer, "name" | "address">> = {},
): BgpPeer {
  return {
    name,
    address: parseIpAddress(address),
    port: parsePort(179),
    as: 64_513,
    role: "external",
    holdTimeSeconds: 90,
    bfd: false,
    prepend: 0,
    nextHopSelf: false,
    ...fields,
  };
}

/** A prefix that is announced to external peers. */
export function announced(
  prefix: string,
  fields: Partial<Omit<AnnouncedPrefix, "prefix">> = {},
): AnnouncedPrefix {
  return {
    prefix: parseCidr(prefix),
    to: ["external"],
    kind: "load-balancer",
    communities: [],
    largeCommunities: [],
    ...fields,
  };
}

/** Imports nothing. */
export const NO_IMPORTS: BgpImports = {
  mesh: [],
  external: [],
  refused: [],
  defaultRoute: false,
  table: 254,
  metric: 4_242,
  limitPerPeer: 1_000,
};

/** What one peer may send: nothing, but for these fields. */
export function peerImports(fields: Partial<PeerImports> = {}): PeerImports {
  return { prefixes: [], clusterPrefixes: [], defaultRoute: false, ...fields };
}

/** Prefixes in a range, by their lengths. */
export function imported(prefix: string, minLength: number, maxLength: number): ImportedPrefix {
  return { prefix: parseCidr(prefix), minLength, maxLength };
}

/** A plan without peers; further fields as in the plan. */
export function bgpPlan(fields: Partial<BgpPlan> = {}): BgpPlan {
  return {
    routerId: "192.0.2.1",
    localAs: 64_512,
    peers: [],
    announced: [],
    imports: NO_IMPORTS,
    ...fields,
  };
}

/** Prefixes of a plan. */
export function cidrs(...texts: readonly string[]): BgpImports["mesh"] {
  return texts.map(parseCidr);
}

/** Plans for golden texts, by name. */
export const BGP_PLANS: Readonly<Record<string, BgpPlan>> = {
  routers: bgpPlan({
    peers: [
      bgpPeer("tor_1", "192.0.2.2", {
        bfd: true,
        gracefulRestartSeconds: 120,
        passwordFile: "/etc/kube-relay/tor_1",
        localAddress: parseIpAddress("192.0.2.1"),
      }),
      bgpPeer("tor_2", "198.51.100.7", { multihopTtl: 3, prepend: 2, nextHopSelf: true }),
      // As long as a name may be.
      bgpPeer("z".repeat(55), "192.0.2.4", { passwordFile: "/etc/kube-relay/z" }),
      bgpPeer("tor_6", "2001:db8::2", { as: 4_200_000_000, holdTimeSeconds: 9 }),
    ],
    announced: [
      announced("10.244.1.0/24", { kind: "pod-cidr", to: ["external", "mesh"] }),
      announced("203.0.113.10/32", {
        communities: ["64512:100", "65535:65281"],
        largeCommunities: ["64512:1:100"],
        localPreference: 200,
      }),
      announced("2001:db8:1::10/128"),
    ],
    imports: {
      ...NO_IMPORTS,
      external: cidrs("198.51.100.0/24", "2001:db8:ff::/48"),
      refused: cidrs("10.96.0.0/12", "203.0.113.10/32", "2001:db8:1::10/128"),
      defaultRoute: true,
    },
  }),
  imports: bgpPlan({
    peers: [
      bgpPeer("all", "192.0.2.2"),
      bgpPeer("nothing", "192.0.2.3", { import: peerImports() }),
      bgpPeer("own", "192.0.2.4", {
        import: peerImports({
          prefixes: [imported("10.0.0.0/8", 16, 24), imported("198.51.100.0/24", 24, 32)],
          clusterPrefixes: [imported("192.0.2.0/24", 32, 32)],
        }),
      }),
      bgpPeer("o".repeat(55), "2001:db8::2", {
        import: peerImports({
          prefixes: [imported("2001:db8:ff::/48", 48, 64)],
          defaultRoute: true,
        }),
      }),
    ],
    imports: {
      ...NO_IMPORTS,
      external: cidrs("198.51.100.0/24"),
      refused: cidrs("10.96.0.0/12", "192.0.2.1/32"),
    },
  }),
  reflector: bgpPlan({
    peers: [
      bgpPeer("client", "192.0.2.12", {
        as: 64_512,
        role: "reflector-client",
        reflectorClusterId: "0.0.0.1",
        port: parsePort(1_790),
      }),
      bgpPeer("other_reflector", "192.0.2.13", {
        as: 64_512,
        role: "mesh",
        port: parsePort(1_790),
        gracefulRestartSeconds: 60,
      }),
      bgpPeer("tor", "192.0.2.2"),
    ],
    announced: [announced("10.244.1.0/24", { kind: "pod-cidr", to: ["mesh", "reflector-client"] })],
    imports: { ...NO_IMPORTS, mesh: cidrs("10.244.0.0/16"), refused: cidrs("10.244.1.0/24") },
  }),
};
