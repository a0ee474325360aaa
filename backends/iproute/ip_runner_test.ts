import { assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import {
  addressLine,
  type IpFailure,
  IpRunner,
  parseBatchFailures,
  routeLine,
} from "./ip_runner.ts";

/** A runner whose program prints this, whatever it is asked. */
function printing(stdout: string): IpRunner {
  return new IpRunner(new FakeCommandRunner().on("ip", { stdout }));
}

Deno.test("addressLine() keeps the address from becoming a source address", () => {
  const v4 = { address: parseIpAddress("10.96.0.1"), device: "lo", neverSource: true };
  const v6 = { address: parseIpAddress("fd00:96::1"), device: "lo", neverSource: true };
  assertEquals(addressLine("add", v4), "addr add 10.96.0.1/32 dev lo scope host");
  assertEquals(addressLine("add", v6), "addr add fd00:96::1/128 dev lo nodad preferred_lft 0");
  assertEquals(addressLine("del", v4), "addr del 10.96.0.1/32 dev lo");
  assertEquals(addressLine("del", v6), "addr del fd00:96::1/128 dev lo");
});

Deno.test("addressLine() writes an address of any device and prefix", () => {
  const address = parseIpAddress("192.0.2.1");
  assertEquals(
    addressLine("replace", { address, device: "eth0", prefixLength: 24 }),
    "addr replace 192.0.2.1/24 dev eth0",
  );
});

Deno.test("routeLine() writes routes of any type, table and number of next hops", () => {
  const destination = parseCidr("10.96.0.0/12");
  const [first, second] = ["192.0.2.1", "192.0.2.2"].map(parseIpAddress);
  assertEquals(
    [
      routeLine("add", { type: "local", destination, device: "lo" }),
      routeLine("del", { type: "local", destination, device: "lo" }),
      routeLine("replace", { gateways: [first!], device: "eth0", table: "250" }),
      routeLine("add", { destination, gateways: [first!, second!] }),
    ],
    [
      "route add local 10.96.0.0/12 dev lo",
      "route del local 10.96.0.0/12 dev lo",
      "route replace default via 192.0.2.1 dev eth0 table 250",
      "route add 10.96.0.0/12 nexthop via 192.0.2.1 nexthop via 192.0.2.2",
    ],
  );
});

Deno.test("IpRunner reads the addresses of each device, and nothing from nothing", async () => {
  const json = JSON.stringify([
    {},
    { ifname: "lo", addr_info: [{ local: "127.0.0.1", prefixlen: 8 }, { local: "nonsense" }] },
    { ifname: "eth0", addr_info: [{ local: "fd00::1", prefixlen: 64 }] },
  ]);
  assertEquals(
    (await printing(json).allAddresses()).map((each) =>
      `${each.device} ${each.address}/${each.prefixLength}`
    ),
    ["lo 127.0.0.1/8", "eth0 fd00::1/64"],
  );
  assertEquals(await printing("\n").allAddresses(), []);
});

Deno.test("IpRunner reads next hops of all kinds, and nothing from nothing", async () => {
  const routes = await printing(JSON.stringify([
    { dst: "default", gateway: "192.168.7.254", dev: "eth0", flags: [] },
    { dst: "10.42.0.0/24", dev: "cni0", protocol: "kernel", scope: "link" },
    { dst: "10.8.0.0/24", nexthops: [{ gateway: "192.168.7.2" }, { gateway: "192.168.7.3" }] },
    { dst: "172.20.0.9", dev: "tun0", scope: "link" },
    { type: "blackhole", dst: "10.9.0.0/16", flags: [] },
    { dst: "10.200.0.0/16", via: { family: "inet6", host: "fe80::1" }, dev: "eth0" },
    { dst: "nonsense" },
  ])).routes("main");
  assertEquals(routes.map(({ gateways }) => gateways.length), [1, 0, 2, 0, 0, 1]);
  assertEquals(routes[0]?.destination, undefined);
  assertEquals(routes[3]?.destination, parseCidr("172.20.0.9/32"));
  assertEquals(routes.map(({ type }) => type).filter(Boolean), ["blackhole"]);
  assertEquals(await printing("").routes("main"), []);
  await assertRejects(() => printing("Error: talking").routes("main"), SyntaxError);
});

const MESSAGES: readonly [string, IpFailure["kind"]][] = [
  ["RTNETLINK answers: File exists", "exists"],
  ["Error: ipv4: Address already assigned.", "exists"],
  ["Error: ipv6: address already assigned.", "exists"],
  ["RTNETLINK answers: Cannot assign requested address", "absent"],
  ["Error: ipv4: Address not found.", "absent"],
  ["Error: ipv6: address not found.", "absent"],
  ["RTNETLINK answers: No such process", "absent"],
  ["RTNETLINK answers: Operation not permitted", "notPermitted"],
  ["RTNETLINK answers: Permission denied", "other"],
  ["Error: IPv6 is disabled on this device.", "other"],
];

for (const [message, kind] of MESSAGES) {
  Deno.test(`parseBatchFailures() takes '${message}' as ${kind}`, () => {
    const failures = parseBatchFailures(`${message}\nCommand failed -:1\n`);
    assertEquals(failures.get(1), { kind, message });
  });
}

Deno.test("parseBatchFailures() gives each line its own reason", () => {
  const stderr = "Error: ipv4: Address already assigned.\nCommand failed -:1\n" +
    "RTNETLINK answers: No such device\nsecond line\nCommand failed -:12\nCommand failed -:13\n";
  assertEquals([...parseBatchFailures(stderr)], [
    [1, { kind: "exists", message: "Error: ipv4: Address already assigned." }],
    [12, { kind: "other", message: "RTNETLINK answers: No such device; second line" }],
    [13, { kind: "other", message: "ip gave no reason" }],
  ]);
  assertEquals(parseBatchFailures("").size, 0);
});

Deno.test("addresses with a lifetime are written and read", async () => {
  const address = parseIpAddress("192.0.2.9");
  const line = addressLine("replace", { address, device: "eth0", lifetimeSeconds: 2 });
  assertEquals(line, "addr replace 192.0.2.9/32 dev eth0 valid_lft 2 preferred_lft 0");
  const printed = '[{"ifname":"eth0","addr_info":[{"local":"192.0.2.9","prefixlen":32,' +
    '"deprecated":true,"valid_life_time":2},{"local":"192.0.2.1","prefixlen":24,' +
    '"valid_life_time":4294967295}]}]';
  assertEquals(await printing(printed).allAddresses(), [
    { address, device: "eth0", prefixLength: 32, neverSource: true, lifetimeSeconds: 2 },
    { address: parseIpAddress("192.0.2.1"), device: "eth0", prefixLength: 24 },
  ]);
});

Deno.test("IpRunner says why a device carries no packets, as iproute2 prints it", async () => {
  const devices = {
    eth0: ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
    // A device whose far end is down.
    eth1: ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"],
    eth2: ["BROADCAST", "MULTICAST"],
    // A VLAN whose device is down, and one whose device has no carrier.
    "eth2.7": ["BROADCAST", "MULTICAST", "M-DOWN"],
    "eth1.7": ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"],
    // A bond without a link, and one with.
    bond0: ["NO-CARRIER", "BROADCAST", "MULTICAST", "MASTER", "UP"],
    bond1: ["BROADCAST", "MULTICAST", "MASTER", "UP", "LOWER_UP"],
    // A port that waits for 802.1X.
    eth3: ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP", "LOWER_UP", "DORMANT"],
    tun0: ["POINTOPOINT", "MULTICAST", "NOARP", "UP", "LOWER_UP"],
  };
  const rows = Object.entries(devices).map(([ifname, flags]) => ({
    ...{ ifname, flags },
    addr_info: [{ local: "192.0.2.1", prefixlen: 24 }],
  }));
  const found = await printing(JSON.stringify(rows)).allAddresses();
  assertEquals(Object.fromEntries(found.map((each) => [each.device, each.obstacle])), {
    ...{ eth0: undefined, eth1: "no-carrier", eth2: "down", "eth2.7": "down" },
    ...{ "eth1.7": "no-carrier", bond0: "no-carrier", bond1: undefined },
    ...{ eth3: "no-carrier", tun0: undefined },
  });
  assertEquals(found.filter(({ hasNoArp }) => hasNoArp).map(({ device }) => device), ["tun0"]);
});

Deno.test("IpRunner leaves out neighbours without a link-layer address", async () => {
  const printed = '[{"dst":"fe80::1","lladdr":"6a:cd:09:21:00:bc","state":["DELAY"]},' +
    '{"dst":"fd09::7","state":["FAILED"]}]';
  const commands = new FakeCommandRunner().on("ip", {}).on("ip -j neigh", { stdout: printed });
  assertEquals(await new IpRunner(commands).neighbours("eth0"), [parseIpAddress("fe80::1")]);
});
