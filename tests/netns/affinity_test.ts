/**
 * Session affinity is kept for a ServicePort, not for each address that leads to it.
 *
 * A fresh draw agrees with another one half of the time. So each pair of frontends has a Service of
 * its own, in both families and with both protocols: that all agree by chance is one in 2⁴⁸.
 */
import { assertEquals } from "@std/assert";
import type { EndpointSlice } from "../../lib/api/kinds/endpoint_slice.ts";
import type { Service } from "../../lib/api/kinds/service.ts";
import { askControl } from "../../lib/tools/control/control_client.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "../support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../support/builders/builders.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import type { ProbeTarget } from "../support/drivers/probe_protocol.ts";
import { isSettled, type RelayProcess, servicesOf } from "../support/stages/relay_process.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { RULE_MODES, type RuleMode } from "../support/stages/rule_modes.ts";

const { IPv4 } = ADDRESSES;
const FRONTENDS = ["cluster IP", "external IP", "load balancer address", "node port"] as const;
const FAMILIES = ["IPv4", "IPv6"] as const;
const PROTOCOLS = ["TCP", "UDP"] as const;
type Frontend = typeof FRONTENDS[number];
type Pod = "a1" | "b1";

/** A Service, by which frontend it is asked first, and by which one then. */
interface Pair {
  readonly family: IpFamily;
  readonly number: number;
  readonly frontends: readonly [Frontend, Frontend];
}

const PAIRS: readonly Pair[] = FAMILIES.flatMap((family, index) =>
  FRONTENDS.flatMap((first) =>
    FRONTENDS.filter((second) => second !== first).map((second) => [first, second] as const)
  ).map((frontends, pair) => ({ family, number: index * 20 + pair + 50, frontends }))
);

/** Returns the frontends of the Service with this number. */
function addressesOf({ family, number }: Pair) {
  const { clusterIp, externalIp, loadBalancerIp, node } = ADDRESSES[family];
  const numbered = (address: string) => address.replace(/(?<=[.:])[0-9a-f]+$/, `${number}`);
  const nodePort = 30_000 + number;
  return {
    nodePort,
    frontends: {
      "cluster IP": { address: numbered(clusterIp), port: 80 },
      "external IP": { address: numbered(externalIp), port: 80 },
      "load balancer address": { address: numbered(loadBalancerIp), port: 80 },
      "node port": { address: node, port: nodePort },
    } satisfies Record<Frontend, Omit<ProbeTarget, "protocol">>,
  };
}

function serviceOf(
  pair: Pair,
  { timeoutSeconds, policy }: Required<Omit<Wanted, "pods">>,
): Service {
  const { nodePort, frontends } = addressesOf(pair);
  return testService(`sticky-${pair.number}`, {
    type: "LoadBalancer",
    clusterIP: frontends["cluster IP"].address,
    externalIPs: [frontends["external IP"].address],
    ports: PROTOCOLS.map((protocol) => ({
      name: protocol.toLowerCase(),
      protocol,
      port: 80,
      nodePort,
    })),
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds } },
    externalTrafficPolicy: policy,
  }, { ingress: [{ ip: frontends["load balancer address"].address }] });
}

function sliceOf({ family, number }: Pair, pods: readonly Pod[]): EndpointSlice {
  const { localPods: [a1], remotePods: [b1] } = ADDRESSES[family];
  const places = {
    a1: { addresses: [a1], nodeName: THIS_NODE },
    b1: { addresses: [b1], nodeName: OTHER_NODE },
  };
  return testEndpointSlice(`sticky-${number}`, {
    addressType: family,
    endpoints: pods.map((pod) => places[pod]),
    ports: PROTOCOLS.map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 8080 })),
  });
}

/** The properties of all Services in the manifests. */
interface Wanted {
  readonly pods: readonly Pod[];
  readonly timeoutSeconds?: number;
  readonly policy?: "Cluster" | "Local";
}

/** A client outside of the cluster, and a Service for each pair of frontends. */
class AffinityStage {
  readonly #scene: RelayScene;
  readonly #client: ProbeClient;
  #writes = 0;

  constructor(scene: RelayScene, readonly relay: RelayProcess) {
    this.#scene = scene;
    this.#client = ProbeClient.start(scene.cluster.client);
  }

  /** Changes all Services and waits until kube-relay has brought that into effect. */
  async write(wanted: Wanted): Promise<void> {
    const mark = `version-${++this.#writes}`;
    await writeServices(this.#scene, wanted, mark);
    await this.relay.until(
      `kube-relay has seen ${mark}`,
      (status) => isSettled(status) && servicesOf(status).some(({ name }) => name.includes(mark)),
    );
  }

  /**
   * Returns the endpoint that answers at a frontend of each ServicePort, by its number and
   * protocol.
   */
  async ask(frontendOf: (pair: Pair) => Frontend): Promise<ReadonlyMap<string, string>> {
    const answers = new Map<string, string>();
    for (const pair of PAIRS) {
      for (const protocol of PROTOCOLS) {
        const target = { protocol, ...addressesOf(pair).frontends[frontendOf(pair)] };
        answers.set(`${pair.number} ${protocol}`, await this.#client.who(target));
      }
    }
    return answers;
  }

  /**
   * Returns the affinity of the client that `explain` reports at a frontend of the first TCP
   * ServicePort.
   */
  async explained(frontend: Frontend): Promise<string> {
    const { address, port } = addressesOf(PAIRS[0]!).frontends[frontend];
    const ends = { from: IPv4.client, to: `${address}:${port}` };
    const socket = `${this.#scene.folder}/control.sock`;
    // On a busy machine the query may take longer than the time limit of explain.
    return await eventually("explain knows the endpoint of the client", async () => {
      const report = await askControl(socket, "/explain", ends);
      const { entry } = report.packets[0]?.affinity ?? {};
      return typeof entry === "object" ? entry.endpoint : entry;
    });
  }
}

/** By the first, or the second, frontend of a pair. */
const byFirst = ({ frontends: [first] }: Pair) => first;
const bySecond = ({ frontends: [, second] }: Pair) => second;

async function writeServices(
  scene: RelayScene,
  { pods, timeoutSeconds = 600, policy = "Cluster" }: Wanted,
  mark = "version-0",
): Promise<void> {
  const services = PAIRS.map((pair) => serviceOf(pair, { timeoutSeconds, policy }));
  await scene.write(
    [...services, testService(mark, { clusterIP: "172.30.0.200" })],
    PAIRS.map((pair) => sliceOf(pair, pods)),
  );
}

/** Long enough for a client to be forgotten. */
const SHORT_SECONDS = 2;
const PAUSE_MS = 3_000;

async function checkAffinity(
  t: Deno.TestContext,
  stage: AffinityStage,
  { isExplained }: { readonly isExplained: boolean },
): Promise<void> {
  await t.step("each pair of frontends leads to one endpoint", async () => {
    const first = await stage.ask(byFirst);
    assertEquals([...new Set(first.values())].sort(), ["pod-a1", "pod-b1"]);
    assertEquals(await stage.ask(bySecond), first);
    assertEquals(await stage.ask(byFirst), first);
  });
  await t.step("an endpoint is removed, and its clients move at all frontends", async () => {
    await stage.write({ pods: ["b1"] });
    for (const by of [byFirst, bySecond]) assertOnly(await stage.ask(by), "pod-b1");
    await stage.write({ pods: ["a1", "b1"] });
    for (const by of [bySecond, byFirst]) assertOnly(await stage.ask(by), "pod-b1");
  });
  await t.step("a client that was silent for the time-out is forgotten", async () => {
    const askedAt = performance.now();
    await stage.ask(byFirst);
    await stage.write({ pods: ["a1", "b1"], timeoutSeconds: SHORT_SECONDS });
    const answers = await stage.ask(byFirst);
    // A busy machine may have taken longer than the time-out.
    if (performance.now() - askedAt < SHORT_SECONDS * 1_000) assertOnly(answers, "pod-b1");
    await eventually("some clients have another endpoint", async () => {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      return [...(await stage.ask(bySecond)).values()].includes("pod-a1");
    });
  });
  await t.step("policy Local: no endpoint of another node is used for it", async () => {
    await stage.write({ pods: ["b1"] });
    assertOnly(await stage.ask(() => "cluster IP"), "pod-b1");
    await stage.write({ pods: ["a1", "b1"], policy: "Local" });
    const explained = async () =>
      [await stage.explained("cluster IP"), await stage.explained("node port")] as const;
    const [a1, b1] = [IPv4.localPods[0], IPv4.remotePods[0]].map((address) => `${address}:8080`);
    if (isExplained) assertEquals<unknown>(await explained(), [b1, "none"]);
    for (const frontend of ["load balancer address", "node port", "external IP"] as const) {
      assertOnly(await stage.ask(() => frontend), "pod-a1");
    }
    if (isExplained) assertEquals<unknown>(await explained(), [a1, a1]);
  });
}

function assertOnly(answers: ReadonlyMap<string, string>, pod: string): void {
  assertEquals([...answers].filter(([, name]) => name !== pod), []);
}

/** A mode, with the requirements of its test. */
type AffinityMode = Pick<RuleMode, "args" | "name" | "prepare" | "requirements">;

const USERSPACE: AffinityMode = {
  name: "userspace mode",
  args: ["--mode=userspace"],
  requirements: netnsRequirements,
  prepare: () => Promise.resolve(),
};

for (const mode of [...RULE_MODES, USERSPACE]) {
  const test = testNeeding(`session affinity in ${mode.name}`, [
    ...mode.requirements(),
    program("conntrack"),
  ]);
  test(`${mode.name}: a client stays at one endpoint, at every frontend`, async (t) => {
    await using scene = await RelayScene.create();
    await mode.prepare(scene.cluster.node);
    await writeServices(scene, { pods: ["a1", "b1"] });
    const relay = scene.start(mode.args);
    await relay.settled();
    // The lists of iptables cannot be asked for one client.
    const isExplained = !mode.name.startsWith("iptables");
    await checkAffinity(t, new AffinityStage(scene, relay), { isExplained });
    await relay.stop();
  });
}
