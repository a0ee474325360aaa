/**
 * A cluster in which Services change all the time while clients connect to unchanged ones: those
 * clients must not notice, and the state at the end must equal that of a fresh start.
 *
 * With `KUBE_RELAY_SEED` the changes of an earlier run are repeated. With `KUBE_RELAY_SABOTAGE=1`
 * the cluster removes an unchanged Service for a moment, and the test must fail.
 */
import { assert, assertEquals } from "@std/assert";
import type { StatusReport } from "../../../lib/tools/status/status_report.ts";
import { ADDRESSES, THIS_NODE } from "../builders/address_plan.ts";
import { ApiProcess } from "../drivers/api_process.ts";
import { testEndpointSlice, testNode, testService } from "../builders/builders.ts";
import { chooseSeed, randomFrom } from "../builders/seeded_random.ts";
import { Churn } from "./churn.ts";
import { type ClusterTopology, createClusterTopology } from "./cluster_topology.ts";
import { ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import type { Namespace } from "./netns.ts";
import type { LoadReport, LoadTarget } from "../drivers/probe_protocol.ts";
import { rawObjects } from "../builders/raw_objects.ts";
import { isSettled, RelayProcess, servicesOf } from "./relay_process.ts";

/** The options of a run. */
export interface ChurnOptions {
  readonly changes: number;
  /** At least 50 are made. */
  readonly changesPerSecond: number;
  /** Further flags of kube-relay. */
  readonly args?: readonly string[];
  /** Done before kube-relay is started. */
  readonly prepare?: (node: Namespace) => Promise<void>;
  /** Returns the rules of kube-relay on the node. */
  readonly stateOf: (node: Namespace, status: StatusReport) => Promise<unknown>;
}

const UNCHANGED = 20;
/** Of each of the two clients. */
const ATTEMPTS_PER_SECOND = 120;
/**
 * A lost packet stays lost, but a busy machine may delay servers and the proxy for seconds. TCP
 * repeats a SYN that a full queue has dropped after 1, 3, 7 and 15 s.
 */
const TIMEOUT_MS = 25_000;
const FAMILIES = ["IPv4", "IPv6"] as const;

/** The cluster IP of an unchanged Service: of one family and the other in turn. */
function unchangedAddress(index: number): string {
  return index % 2 === 0 ? `172.30.0.${100 + index}` : `fd00:172:30::${100 + index}`;
}

/** Objects of the unchanged Services: each has TCP and UDP, an endpoint here and one on the other node. */
function unchangedObjects() {
  return Array.from({ length: UNCHANGED }, (_, index) => {
    const family = FAMILIES[index % 2] ?? "IPv4";
    const { localPods, remotePods } = ADDRESSES[family];
    const ports = ["TCP", "UDP"].map((protocol) => ({ name: protocol.toLowerCase(), protocol }));
    return [
      ...rawObjects(
        "Service",
        testService(`unchanged-${index}`, {
          clusterIP: unchangedAddress(index),
          ports: ports.map((port) => ({ ...port, port: 80 })),
        }),
      ),
      ...rawObjects(
        "EndpointSlice",
        testEndpointSlice(`unchanged-${index}`, {
          addressType: family,
          endpoints: [localPods[index % 4 < 2 ? 0 : 1], remotePods[0]],
          ports: ports.map((port) => ({ ...port, port: 8080 })),
        }),
      ),
    ];
  }).flat();
}

function unchangedTargets(): LoadTarget[] {
  return Array.from(
    { length: UNCHANGED },
    (_, index) =>
      (["TCP", "UDP"] as const).map((protocol) => ({
        protocol,
        address: unchangedAddress(index),
        port: 80,
        expect: [index % 4 < 2 ? "pod-a1" : "pod-a2", "pod-b1"],
      })),
  ).flat();
}

async function startServers({ localPods, remotePods }: ClusterTopology): Promise<void> {
  const pods = [
    { namespace: localPods[0], name: "pod-a1", of: "localPods", at: 0 },
    { namespace: localPods[1], name: "pod-a2", of: "localPods", at: 1 },
    { namespace: remotePods[0], name: "pod-b1", of: "remotePods", at: 0 },
  ] as const;
  await Promise.all(pods.map(({ namespace, name, of, at }) => {
    const listen = FAMILIES.map((family) => ({ address: ADDRESSES[family][of][at], port: 8080 }));
    return startEchoServer(namespace, { name, listen });
  }));
}

/** Makes the changes at an even pace. Resolves to how many there were in a second. */
async function makeChanges(
  api: ApiProcess,
  { churn, changes, changesPerSecond }: {
    readonly churn: Churn;
    readonly changes: number;
    readonly changesPerSecond: number;
  },
): Promise<number> {
  const start = performance.now();
  for (let made = 0; made < changes; made++) {
    await until(start + made * 1000 / changesPerSecond);
    await api.write(...changeOf(churn));
    if (made === changes / 2 && Deno.env.get("KUBE_RELAY_SABOTAGE") === "1") await sabotage(api);
  }
  return changes * 1000 / (performance.now() - start);
}

function changeOf(churn: Churn): Parameters<ApiProcess["write"]> {
  const { objects, deleted } = churn.next();
  return [objects, { deleted }];
}

/** Takes the endpoints of an unchanged Service away, for as long as kube-relay needs to see it. */
async function sabotage(api: ApiProcess): Promise<void> {
  const victim = unchangedObjects().filter(({ metadata }) =>
    metadata.name.startsWith("unchanged-0")
  );
  const slices = victim.filter(({ kind }) => kind === "EndpointSlice");
  await api.write([], { deleted: slices });
  await until(performance.now() + 2_000);
  await api.write(slices);
}

async function until(time: number): Promise<void> {
  const left = time - performance.now();
  if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
}

function assertNoFailure(report: LoadReport): void {
  assertEquals(report.failures, 0, report.examples.join("\n"));
  assertEquals(report.answered, report.attempts);
  assertEquals(Object.keys(report.byTarget).length, UNCHANGED * 2);
}

function attemptsPerSecond(reports: readonly LoadReport[]): number {
  return reports.reduce((sum, { attempts, seconds }) => sum + attempts / seconds, 0);
}

function printFigures({ changes, changesPerSecond, reports, status }: {
  readonly changes: number;
  readonly changesPerSecond: number;
  readonly reports: readonly LoadReport[];
  readonly status: StatusReport;
}): void {
  const attempts = reports.reduce((sum, report) => sum + report.attempts, 0);
  const slowestMs = Math.max(...reports.map((report) => report.slowestMs));
  // deno-lint-ignore no-console -- the figures
  console.log(
    `${changes} changes, ${changesPerSecond.toFixed(0)} a second; ${attempts} attempts, ` +
      `${attemptsPerSecond(reports).toFixed(0)} a second; slowest ${slowestMs.toFixed(0)} ms; ` +
      `${servicesOf(status).length} ServicePorts at the end, largest event-loop delay ` +
      `${status.largestEventLoopDelayMs} ms`,
  );
}

/** Makes the changes under connections; throws when one fails, or the end is not as it should be. */
export async function runChurn(options: ChurnOptions): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await using cluster = await createClusterTopology();
    await startServers(cluster);
    await options.prepare?.(cluster.node);
    const api = await ApiProcess.start(cluster.node, `${folder}/kubeconfig`);
    await api.write([...rawObjects("Node", testNode()), ...unchangedObjects()]);
    const relayOptions = {
      folder,
      args: [
        `--kubeconfig=${api.kubeconfig}`,
        `--hostname-override=${THIS_NODE}`,
        `--cluster-cidr=${ADDRESSES.IPv4.podCidr},${ADDRESSES.IPv6.podCidr}`,
        "--iptables-min-sync-period=50ms",
        ...options.args ?? [],
      ],
    };
    const relay = RelayProcess.start(cluster.node, relayOptions);
    await relay.settled();
    await changeUnderLoad(options, { cluster, api, relay });
    // Nothing else changed the rules of kube-relay.
    assertEquals(
      relay.log.match(/^.*Another program (removed|changed|flushed).*$/m)?.[0],
      undefined,
    );
    await assertEqualsFreshStart(options, { relay, cluster, relayOptions }).catch((cause) => {
      throw new Error(`not as after a fresh start; the API server said: ${api.errors}`, { cause });
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function changeUnderLoad(
  { changes, changesPerSecond: wanted }: ChurnOptions,
  { cluster, api, relay }: {
    readonly cluster: ClusterTopology;
    readonly api: ApiProcess;
    readonly relay: RelayProcess;
  },
): Promise<void> {
  const seed = chooseSeed();
  // deno-lint-ignore no-console -- to make the same changes again
  console.log(`KUBE_RELAY_SEED=${seed}`);
  const clients = [ProbeClient.start(cluster.localPodClient), ProbeClient.start(cluster.client)];
  for (const client of clients) {
    await client.startLoad(unchangedTargets(), {
      perSecond: ATTEMPTS_PER_SECOND,
      timeoutMs: TIMEOUT_MS,
    });
  }
  const churn = new Churn(randomFrom(seed));
  const changesPerSecond = await makeChanges(api, { churn, changes, changesPerSecond: wanted });
  await api.write(rawObjects("Service", testService("mark", { clusterIP: "172.30.2.1" })));
  const status = await relay.until(
    "kube-relay has seen the last change",
    (status) => isSettled(status) && servicesOf(status).some(({ name }) => name === "ns1/mark"),
  );
  const reports = await Promise.all(clients.map((client) => client.stopLoad()));
  printFigures({ changes, changesPerSecond, reports, status });
  for (const report of reports) assertNoFailure(report);
  assert(changesPerSecond >= 50, `only ${changesPerSecond} changes a second`);
  const perSecond = attemptsPerSecond(reports);
  assert(perSecond >= 200, `only ${perSecond} attempts a second`);
}

/** Compares the node with one on which kube-relay started clean with the same objects. */
async function assertEqualsFreshStart(
  { stateOf }: ChurnOptions,
  { relay, cluster, relayOptions }: {
    readonly relay: RelayProcess;
    readonly cluster: ClusterTopology;
    readonly relayOptions: Parameters<typeof RelayProcess.start>[1];
  },
): Promise<void> {
  const found = await stateOf(cluster.node, await relay.settled());
  await relay.kill();
  await RelayProcess.run(cluster.node, { ...relayOptions, args: ["--cleanup"] });
  await using fresh = RelayProcess.start(cluster.node, relayOptions);
  assertEquals(found, await stateOf(cluster.node, await fresh.settled()));
}

/** Returns the Services that kube-relay reports as served, in a fixed order. */
export function servedServices(status: StatusReport): unknown {
  return servicesOf(status).map(({ name, protocol, addresses, endpoints, quarantined }) => ({
    name: `${name}/${protocol}`,
    addresses: addresses.map((address) => JSON.stringify(address)).sort(),
    endpoints: endpoints.map((endpoint) => JSON.stringify(endpoint)).sort(),
    quarantined,
  })).sort((a, b) => a.name < b.name ? -1 : 1);
}
