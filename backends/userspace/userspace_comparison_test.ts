import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { createMemoryStore } from "../../tests/support/drivers/listed_addresses.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { ComparisonScope, ServedAddress } from "../../lib/proxy/service_mode.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import type { SocketKey } from "./listeners.ts";
import { compareListeners, kernelSockets, userspaceComparison } from "./userspace_comparison.ts";

const TCP = `\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0100007F:1F91 0200007F:0050 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0
10000: 0100600A:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
`;
const UDP6 = `\
  sl  local_address                         remote_address                        st tx_queue
  12: 000000000000000000000000010000FD:0035 00000000000000000000000000000000:0000 07 00000000:0
  13: B80D0120000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:0
  14: 00000000000000000000000001000000:0035 00000000000000000000000001000000:1234 01 00000000:0
`;

Deno.test("kernelSockets() gives sockets that wait for clients, and no connections", async () => {
  const commands = new FakeCommandRunner()
    .on("cat /proc/net/tcp", { stdout: TCP })
    .on("cat /proc/net/udp", { stdout: "" })
    .on("cat /proc/net/tcp6", { stdout: "\0" })
    .on("cat /proc/net/udp6", { stdout: UDP6 });
  assertEquals([...await kernelSockets(commands, "IPv4") ?? []], [
    ...["127.0.0.1:8080/TCP", "10.96.0.1:80/TCP"],
  ] as SocketKey[]);
  assertEquals([...await kernelSockets(commands, "IPv6") ?? []], [
    ...["[::fd00:1]:53/UDP", "[2001:db8::1]:53/UDP"],
  ] as SocketKey[]);
});

const WEB = testServicePlan({ name: "web", clusterIp: "127.96.0.1", to: ["127.0.0.1:9"] });
const DNS = testServicePlan({
  name: "dns",
  clusterIp: "127.96.0.2",
  protocol: "UDP",
  to: ["127.0.0.1:9"],
});
const NONE = testServicePlan({ name: "none", clusterIp: "127.96.0.3", to: [] });
const PLAN = testProxyPlan([WEB, DNS, NONE]);

function address(text: string, overrides: Partial<ServedAddress> = {}): ServedAddress {
  const [, host = "", port = "", protocol] = /^(.*):(\d+)\/(\w+)$/.exec(text) ?? [];
  return {
    role: "ClusterIP",
    address: parseIpAddress(host),
    port: parsePort(port),
    protocol: parseProtocol(protocol),
    state: "serving",
    ...overrides,
  };
}

const WEB_AT = "127.96.0.1:80/TCP";
const DNS_AT = "127.96.0.2:80/UDP";
const SERVING = [
  { key: WEB.key, addresses: [address(WEB_AT)] },
  { key: DNS.key, addresses: [address(DNS_AT)] },
  { key: NONE.key, addresses: [address("127.96.0.3:80/TCP", { state: "refusing" })] },
];
const LISTED = new Set([WEB_AT, DNS_AT] as SocketKey[]);

function found(
  scope: ComparisonScope,
  sockets: ReadonlySet<SocketKey> | undefined = LISTED,
): readonly string[] {
  return compareListeners(PLAN, scope, sockets)
    .map(({ kind, object, name, key }) => `${kind} ${object} ${name} ${key}`);
}

Deno.test("compareListeners() finds no difference if all sockets are open", () => {
  assertEquals(found({ serving: SERVING }), []);
  assertEquals(
    compareListeners(PLAN, { serving: SERVING }, undefined),
    [],
  );
});

Deno.test("compareListeners() names the sockets that the process lacks, by Service", () => {
  const [web, dns, none] = SERVING;
  const missing = [`missing listener ${WEB_AT} ${WEB.key}`];
  assertEquals(found({ serving: [dns!, none!] }), missing);
  const refusing = { key: WEB.key, addresses: [address(WEB_AT, { state: "refusing" })] };
  assertEquals(found({ serving: [refusing, dns!, none!] }), missing);
  const elsewhere = { key: WEB.key, addresses: [address("127.96.0.1:81/TCP")] };
  assertEquals(found({ serving: [elsewhere, dns!, none!] }), [
    ...missing,
    `extra listener 127.96.0.1:81/TCP ${WEB.key}`,
  ]);
  assertEquals(found({ serving: [dns!, none!], keys: new Set([DNS.key]) }), []);
  assertEquals(web?.key, WEB.key);
});

Deno.test("compareListeners() does not report quarantine as a difference, and no other address as one in quarantine", () => {
  const serving = SERVING.slice(1);
  const reason = "in use";
  assertEquals(found({ serving, quarantined: [{ key: WEB.key, reason }] }), []);
  assertEquals(found({ serving, quarantined: [{ key: WEB.key, address: WEB_AT, reason }] }), []);
  const other = [{ key: WEB.key, address: "127.96.0.9:80/TCP", reason }];
  assertEquals(found({ serving, quarantined: other }), [`missing listener ${WEB_AT} ${WEB.key}`]);
});

Deno.test("compareListeners() believes the kernel, also of an address that stands in", () => {
  assertEquals(found({ serving: SERVING }, new Set([DNS_AT as SocketKey])), [
    `missing listener ${WEB_AT} ${WEB.key}`,
  ]);
  const at = "127.200.0.1:80/TCP";
  const standIn = { key: WEB.key, addresses: [address(at, { role: "StandIn" })] };
  const serving = [standIn, ...SERVING.slice(1)];
  assertEquals(found({ serving }, new Set([at, DNS_AT] as SocketKey[])), []);
  assertEquals(found({ serving }), [`missing listener ${at} ${WEB.key}`]);
});

Deno.test("compareListeners() names open sockets of a Service that was removed or has no endpoints", () => {
  const none = { key: NONE.key, addresses: [address("127.96.0.3:80/TCP")] };
  assertEquals(found({ serving: [...SERVING.slice(0, 2), none] }), [
    `extra listener 127.96.0.3:80/TCP ${NONE.key}`,
  ]);
  const old = testServicePlan({ name: "old" });
  const gone = { key: old.key, addresses: [address("127.96.0.9:80/TCP")] };
  assertEquals(found({ serving: [...SERVING, gone] }), [
    `extra listener 127.96.0.9:80/TCP ${old.key}`,
  ]);
});

Deno.test("compareListeners() agrees with a backend that has synced", async () => {
  await using test = new TestUserspaceBackend();
  const services = [WEB, DNS, NONE, testServicePlan({ name: "sctp", protocol: "SCTP" })];
  const { quarantined } = await test.sync(services);
  const plan = testProxyPlan(services);
  const { services: serving } = await test.backend.inspect();
  const scope = { serving, quarantined };
  assertEquals(compareListeners(plan, scope, undefined), []);
  const { services: [some] } = await test.backend.inspect([WEB.key]);
  const differences = compareListeners(plan, { ...scope, serving: [some!] }, undefined);
  assertEquals(differences.map(({ name }) => name), [DNS_AT]);
});

Deno.test("a repair and a sync of userspace mode take turns: no address outlives its record", async () => {
  const store = createMemoryStore();
  const batches: string[] = [];
  const release = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  // No address is on lo, so that each recorded one that the plan needs is missing.
  const commands = new FakeCommandRunner()
    .on("ip -4 -j", { stdout: "[]" })
    .on("ip -4 -force -batch", ({ stdin }) => {
      batches.push(stdin.trim());
      return {};
    });
  const runner: CommandRunner = {
    async run(program, args, options) {
      if (args.includes("-batch")) {
        reached.resolve();
        await release.promise;
      }
      return await commands.run(program, args, options);
    },
  };
  const comparison = userspaceComparison({ runner, store }, { family: "IPv4" });
  await using test = new TestUserspaceBackend({ store, comparison });
  const live = testProxyPlan([WEB, DNS]);
  assertEquals(await test.backend.repair(live), {}, "before the first sync");
  await test.sync([WEB, DNS]);
  const repair = test.backend.repair(live);
  await reached.promise;
  const { batchLines } = test.host;
  const sync = test.sync([DNS]);
  // Asked for during the sync; by then the plan and the record lack the address.
  const { services } = live as unknown as { services: Map<typeof WEB.key, unknown> };
  services.delete(WEB.key);
  const second = test.backend.repair(live);
  for (let turn = 0; turn < 20; turn++) await systemClock.yieldToEventLoop();
  assertEquals(test.host.batchLines, batchLines, "the sync waits for the repair");
  release.resolve();
  assertEquals(await repair, { commands: 1, lines: 2 });
  await sync;
  await second;
  assertEquals(test.host.batchLines.at(-1), "addr del 127.96.0.1/32 dev lo");
  assertEquals(batches.at(-1)?.includes("127.96.0.1/"), false, batches.at(-1));
});
