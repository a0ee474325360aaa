/** A dump with something in every field, for tests that read one. */
import type { KubeObject } from "../../../lib/api/kind.ts";
import type { Node } from "../../../lib/api/kinds/node.ts";
import type { ServiceCidr } from "../../../lib/api/kinds/service_cidr.ts";
import { collectDump, type DumpParts } from "../../../lib/tools/dump/collect_dump.ts";
import type { ChangesReport } from "../../../lib/tools/changes/change_entry.ts";
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import { defaultConfiguration } from "../../../lib/config/configuration.ts";
import { relayOptionsOf } from "../../../lib/config/relay_options.ts";
import { SERVICE_KINDS } from "../../../lib/app/service/service_subscriptions.ts";
import { InformerSet } from "../../../lib/kube/informer_set.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import type { BackendMode } from "../../../lib/proxy/backend.ts";
import { THIS_NODE } from "./address_plan.ts";
import { testEndpoints, testEndpointSlice, testNode, testService } from "./builders.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { testServicePlan } from "./service_plans.ts";

/** Informers that hold these objects, by the name of their resource. */
export function testInformers(
  objects: Readonly<Record<string, readonly KubeObject[]>>,
): InformerSet {
  const informers = new InformerSet();
  for (const spec of SERVICE_KINDS) {
    const informer = informers.subscribe(spec);
    for (const object of objects[spec.plural] ?? []) informer.upsert(object);
  }
  return informers;
}

const SERVICE_CIDR: ServiceCidr = {
  metadata: { name: "kubernetes" },
  spec: { cidrs: ["172.30.0.0/16"] },
};
const WEB = testServicePlan({ name: "web" });
const AT = "2026-01-02T03:04:05.000Z";

const STATUS: StatusReport = {
  version: "0.1.0",
  pid: 4711,
  startedAt: AT,
  phase: "serving",
  largestEventLoopDelayMs: 3,
  node: { name: THIS_NODE, zone: "zone-a" },
  sources: [{ name: "https://192.0.2.1:6443", state: "connected", problems: ["it is slow"] }],
  hostSettings: [{
    name: "net.ipv4.conf.all.route_localnet",
    wanted: "1",
    found: "0",
    state: "refused",
    purpose: "serve node ports on 127.0.0.1",
    reason: "read-only file system",
    cure: "sysctl -w net.ipv4.conf.all.route_localnet=1",
  }],
  families: [{
    family: "IPv4",
    mode: "iptables",
    summary: "rules",
    lastSync: { at: AT, durationMs: 1.5, full: true, services: 1, operations: { rules: 3 } },
    pending: false,
    failures: 1,
    lastError: "it failed before",
    services: [{
      name: "ns1/web",
      protocol: "TCP",
      addresses: [{
        role: "ClusterIP",
        address: parseIpAddress("172.30.0.41"),
        port: parsePort(80),
        protocol: "TCP",
        state: "serving",
      }],
      endpoints: [{ address: "10.180.0.1:80", state: "ready", local: true }],
      connections: 2,
      traffic: { bytesFromClients: 1, bytesToClients: 2, opened: 3, open: 4 },
      quarantined: "an address of it is taken",
    }],
    quarantined: [{ key: WEB.key, address: "172.30.0.41:80/TCP", reason: "it is taken" }],
  }],
};

const CHANGES: ChangesReport = {
  entries: [
    {
      kind: "sync",
      sequence: 1,
      at: AT,
      family: "IPv4",
      outcome: "applied",
      waitedMs: 1,
      tookMs: 6,
      lines: [
        { text: "Service ns1/web added: new", object: "ns1/web" },
        { text: "-> ns1/web/TCP added: 1 endpoint", tone: "effect", item: WEB.key },
        { text: "Had failed once: it failed before", tone: "warning" },
      ],
    },
    {
      kind: "quarantine",
      sequence: 2,
      at: AT,
      controller: "routing",
      family: "IPv4",
      lines: [{ text: "QUARANTINE: ns1/web/TCP: it is taken", tone: "bad", item: WEB.key }],
    },
    { kind: "configuration", sequence: 3, at: AT, lines: [{ text: "Configuration file: mode" }] },
  ],
  forgotten: 1,
  syncs: [{ family: "IPv4", at: 1, durationMs: 2, outcome: "applied" }],
};

/** Returns the parts of {@linkcode testDump}, with overrides. */
export function testDumpParts(overrides: Partial<DumpParts> = {}): DumpParts {
  const env = () => undefined;
  const node: Node = testNode({ labels: { "topology.kubernetes.io/zone": "zone-a" } });
  return {
    mode: "iptables" as BackendMode,
    nodeName: THIS_NODE,
    configuration: {
      proxy: {
        ...defaultConfiguration(),
        nodePortAddresses: ["primary"],
        clusterCIDR: "10.0.0.0/8",
      },
      relay: relayOptionsOf({ uid: 0, env }, {
        flags: { "service-cidr": ["172.30.0.0/16"] },
        problems: [],
      }),
    },
    informers: testInformers({
      services: [testService("web", { clusterIP: "172.30.0.41" })],
      endpointslices: [testEndpointSlice("web", { endpoints: ["10.180.0.1"] })],
      endpoints: [testEndpoints("old", [{ addresses: [{ ip: "10.180.0.2" }] }])],
      nodes: [node],
      servicecidrs: [SERVICE_CIDR],
    }),
    node,
    families: [{
      family: "IPv4",
      quarantined: [{ key: WEB.key, reason: "it is taken", retryAt: "2026-01-02T03:04:05Z" }],
      interfaceAddresses: [parseIpAddress("127.0.0.1"), parseIpAddress("192.168.0.2")],
      facts: { features: { comment: false }, beLiberal: true },
    }],
    status: STATUS,
    changes: CHANGES,
    ...overrides,
  };
}

/** The text of a dump. */
export function testDump(overrides: Partial<DumpParts> = {}): string {
  const edges = { clock: new FakeClock(), kernelRelease: "6.12.0-test" };
  return JSON.stringify(collectDump(edges, testDumpParts(overrides)));
}
