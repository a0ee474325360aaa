import { assertEquals } from "@std/assert";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";
import { testProxyPlan, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import type { ComparisonScope, ServedAddress } from "../../lib/proxy/service_mode.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort, parseProtocol } from "../../lib/net/port.ts";
import { compareListeners } from "./compare_listeners.ts";
import type { SocketKey } from "./listeners.ts";

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
  return compareListeners({ plan: PLAN, scope, sockets })
    .map(({ kind, object, name, key }) => `${kind} ${object} ${name} ${key}`);
}

Deno.test("compareListeners() finds no difference if all sockets are open, and asks only for given addresses", () => {
  assertEquals(found({ serving: SERVING }), []);
  assertEquals(
    compareListeners({ plan: PLAN, scope: { serving: SERVING }, sockets: undefined }),
    [],
  );
  assertEquals(found({}), []);
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
  assertEquals(compareListeners({ plan, scope, sockets: undefined }), []);
  const { services: [some] } = await test.backend.inspect([WEB.key]);
  const differences = compareListeners({
    plan,
    scope: { ...scope, serving: [some!] },
    sockets: undefined,
  });
  assertEquals(differences.map(({ name }) => name), [DNS_AT]);
});
