import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { IpRunner, type Route } from "../../iproute/ip_runner.ts";
import { addressConflict, rangeConflict } from "./route_guard.ts";

/** The routes that `ip` prints as these rows. */
function routesOf(rows: readonly unknown[]): Promise<readonly Route[]> {
  const commands = new FakeCommandRunner().on("ip", { stdout: JSON.stringify(rows) });
  return new IpRunner(commands).routes("main");
}

const ROUTES = await routesOf([
  { dst: "default", gateway: "192.168.7.254", dev: "eth0", flags: [] },
  { dst: "10.42.0.0/24", dev: "cni0", protocol: "kernel", scope: "link", prefsrc: "10.42.0.1" },
  { dst: "10.42.1.0/24", gateway: "10.42.1.0", dev: "flannel.1", flags: ["onlink"] },
  { dst: "10.8.0.0/24", nexthops: [{ gateway: "192.168.7.2" }, { gateway: "192.168.7.3" }] },
  { dst: "172.20.0.9", dev: "tun0", scope: "link" },
  { dst: "192.168.7.0/24", dev: "eth0", protocol: "kernel", scope: "link" },
  { type: "blackhole", dst: "10.9.0.0/16", flags: [] },
  { dst: "203.0.113.0/24", dev: "lo", scope: "link" },
  { dst: "10.200.0.0/16", via: { family: "inet6", host: "fe80::1" }, dev: "eth0" },
]);

Deno.test("rangeConflict() ignores the routes that IPv6 has for each address of the node", async () => {
  const routes = await routesOf([
    { dst: "fd00:96::a", dev: "nodelocaldns", protocol: "kernel", metric: 256 },
    { dst: "fd00:96::1", dev: "lo", protocol: "kernel", metric: 256 },
  ]);
  const range = parseCidr("fd00:96::/112");
  const nodeAddresses = [parseIpAddress("fd00:96::a")];
  assertEquals(rangeConflict(range, { routes, nodeAddresses }), undefined);
  assertEquals(
    rangeConflict(range, { routes, nodeAddresses: [] }),
    "the node has a route to fd00:96::a/128, which lies in it",
  );
});

const ADDRESSES: readonly [string, string | undefined][] = [
  ["192.168.7.20", "192.168.7.0/24 on eth0"],
  ["10.42.0.17", "10.42.0.0/24 on cni0"],
  ["172.20.0.9", "172.20.0.9/32 on tun0"],
  ["10.42.1.0", "gateway"],
  ["203.0.113.5", undefined],
  ["10.42.1.9", undefined],
  ["198.51.100.1", undefined],
  ["10.9.1.1", undefined],
];

for (const [address, conflict] of ADDRESSES) {
  Deno.test(`addressConflict() ${conflict ? `refuses ${address}: ${conflict}` : `lets ${address} be added`}`, () => {
    const found = addressConflict(parseIpAddress(address), ROUTES);
    assertEquals(conflict ? found?.includes(conflict) : found, conflict ? true : undefined, found);
  });
}

const RANGES: readonly [string, string[], string | undefined][] = [
  ["10.96.0.0/12", [], undefined],
  ["10.43.0.0/16", ["192.168.7.1"], undefined],
  ["10.0.0.0/8", [], "a route to 10.42.0.0/24"],
  ["192.168.0.0/16", [], "gateway 192.168.7.254"],
  ["192.168.7.128/25", ["192.168.7.200"], "address 192.168.7.200"],
  ["192.168.7.0/25", ["192.168.7.200"], "gateway 192.168.7.2"],
  ["172.20.0.0/16", [], "a route to 172.20.0.9/32"],
  ["10.42.0.0/24", [], undefined],
  ["10.96.0.0/16", ["10.96.0.10"], undefined],
  ["127.96.0.0/16", ["127.0.0.1"], undefined],
];

for (const [range, own, conflict] of RANGES) {
  Deno.test(`rangeConflict() ${conflict ? `refuses ${range}: ${conflict}` : `lets ${range} be routed with node addresses [${own}]`}`, () => {
    const nodeAddresses = own.map(parseIpAddress);
    const found = rangeConflict(parseCidr(range), { routes: ROUTES, nodeAddresses });
    assertEquals(conflict ? found?.includes(conflict) : found, conflict ? true : undefined, found);
  });
}
