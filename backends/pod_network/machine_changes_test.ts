import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { PodNetworkPlan } from "../../lib/routing/pod_network_plan.ts";
import type { Link, Route } from "../iproute/ip_text.ts";
import { machineChanges, mtuOfPods, type PodMachine } from "./machine_changes.ts";

const [LOCAL, REMOTE, SOURCE] = ["192.0.2.1", "192.0.3.1", "10.244.1.0"].map(parseIpAddress) as [
  ...[ReturnType<typeof parseIpAddress>, ReturnType<typeof parseIpAddress>],
  ReturnType<typeof parseIpAddress>,
];
const DEVICE = "kr-pod-abcdefgh";
const ETH0: Link = { device: "eth0", mtu: 9000, isUp: true, addresses: [LOCAL] };
const TUNNEL: Link = {
  ...{ device: DEVICE, mtu: 8980, isUp: true, kind: "ipip", alias: "kube-relay:far" },
  addresses: [SOURCE],
};
const ROUTE: Route = {
  ...{ destination: parseCidr("10.244.3.0/24"), device: DEVICE, source: SOURCE },
  ...{ gateways: [], metric: 256 },
};
const PLAN: PodNetworkPlan = {
  podCidrs: [parseCidr("10.244.1.0/24")],
  addresses: [LOCAL],
  routes: [{ destination: ROUTE.destination!, node: "far", tunnel: DEVICE, source: SOURCE }],
  tunnels: [{
    ...{ device: DEVICE, node: "far", family: "IPv4", source: SOURCE },
    ...{ local: LOCAL, remote: REMOTE },
  }],
  isOverlay: true,
  unrouted: [],
  problems: [],
};

function linesOf(plan: PodNetworkPlan, machine: Partial<PodMachine>): readonly string[] {
  return machineChanges(plan, { links: [ETH0], routes: [], ...machine })
    .flatMap(({ lines }) => lines);
}

Deno.test("machineChanges() makes tunnels before routes, and removes routes before tunnels", () => {
  assertEquals(linesOf(PLAN, {}), [
    `link add ${DEVICE} type ipip local 192.0.2.1 remote 192.0.3.1 ttl 64`,
    `link set ${DEVICE} mtu 8980 alias kube-relay:far up`,
    `addr replace 10.244.1.0/32 dev ${DEVICE}`,
    `route add 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256 src 10.244.1.0`,
  ]);
  const without = { ...PLAN, routes: [], tunnels: [] };
  assertEquals(linesOf(without, { links: [ETH0, TUNNEL], routes: [ROUTE] }), [
    `route del 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256`,
    `link del ${DEVICE}`,
  ]);
});

Deno.test("machineChanges() is empty for a machine that is as planned", () => {
  assertEquals(linesOf(PLAN, { links: [ETH0, TUNNEL], routes: [ROUTE] }), []);
});

Deno.test("machineChanges() repairs what another program changed", () => {
  const repair = (link: Partial<Link>) =>
    linesOf(PLAN, { links: [ETH0, { ...TUNNEL, ...link }], routes: [ROUTE] });
  const set = `link set ${DEVICE} mtu 8980 alias kube-relay:far up`;
  const add = `addr replace 10.244.1.0/32 dev ${DEVICE}`;
  assertEquals(repair({ mtu: 1480 }), [set, add]);
  assertEquals(repair({ isUp: false }), [set, add]);
  assertEquals(repair({ addresses: [parseIpAddress("10.9.0.0")] }), [
    ...[set, add, `addr del 10.9.0.0/32 dev ${DEVICE}`],
  ]);
  const direct: Route = {
    ...{ destination: ROUTE.destination!, device: "eth0", metric: 256 },
    gateways: [REMOTE],
  };
  assertEquals(linesOf(PLAN, { links: [ETH0, TUNNEL], routes: [direct] }), [
    `route replace 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256 src 10.244.1.0`,
  ]);
});

Deno.test("machineChanges() leaves a device of another kind alone, whatever its name", () => {
  const foreign: Link = { ...TUNNEL, kind: "dummy" };
  const without = { ...PLAN, routes: [], tunnels: [] };
  assertEquals(linesOf(without, { links: [ETH0, foreign] }), []);
});

Deno.test("mtuOfPods() leaves room for the header of tunnels, unless it is given", () => {
  const links = [ETH0];
  assertEquals(mtuOfPods(PLAN, { links }), 8980);
  assertEquals(mtuOfPods({ ...PLAN, isOverlay: false }, { links }), 9000);
  assertEquals(mtuOfPods({ ...PLAN, mtu: 1400 }, { links }), 1400);
  assertEquals(mtuOfPods(PLAN, { links: [] }), 1480, "no interface has the address");
});
