/**
 * The cases of NetworkPolicy with real packets: every pod is a namespace on one of two nodes, each node
 * has its own data planes, and a Service of one kube-relay mode for each pod.
 */
import type { RulePlaneEdges } from "../../../backends/netfilter/rule_plane.ts";
import type { PolicyPlane } from "../../../backends/policy/policy_plane.ts";
import { objectKey } from "../../../lib/api/kind.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import type { Connection } from "../../../lib/policy/judge_connection.ts";
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { caseAddresses } from "../../policy/case_addresses.ts";
import {
  applyStep,
  CASE_NAMESPACES,
  CASE_PORTS,
  caseObjects,
  type CasePod,
  casePods,
  isExpected,
  type PolicyExpectation,
  type PolicyStep,
} from "../../policy/policy_case.ts";
import { IPV4_PLAN } from "../builders/policy_objects.ts";
import { ProbeClient, startEchoServer } from "../drivers/echo_network.ts";
import type { ProbeTarget } from "../drivers/probe_protocol.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import type { Namespace } from "./netns.ts";
import { caseServices, clusterIpOf } from "./policy_case_services.ts";
import {
  CASE_NODES,
  type CaseNode,
  createPolicyCaseTopology,
  nodeOf,
  type PolicyCaseTopology,
} from "./policy_case_topology.ts";
import type { PolicyDataPlaneFactory } from "./policy_scene.ts";
import { walkPolicies as walkIptables } from "../walk/iptables_policies.ts";
import { walkPolicies as walkNft } from "../walk/nft_policies.ts";

/** The part of a data plane that the cases use. */
export type CasePlane = Pick<
  PolicyPlane,
  "compare" | "family" | "start" | "sync" | "tool" | typeof Symbol.asyncDispose
>;

/** The functions that set up a node for its data plane. */
export interface PolicyCaseNodes {
  readonly make: (
    ...args: readonly [...Parameters<PolicyDataPlaneFactory>, node: Namespace]
  ) => CasePlane;
  /** Programs Services on a node, by a mode of kube-relay. */
  readonly loadServices: (
    node: Namespace,
    family: IpFamily,
    plan: ProxyPlan,
  ) => Promise<void>;
  /** Called before anything else is done on a node. */
  readonly prepare?: (node: Namespace) => Promise<void>;
  /** @default {30 seconds: no repair during a test} */
  readonly syncPeriodMs?: number;
  /** Judges a connection that no program here speaks. @default {a walk through the rendered rules} */
  readonly isAllowed?: (plan: PolicyPlan, connection: Connection) => boolean;
  /** Whether another answer than refusal and silence is a denial. @default {none is} */
  readonly isDenial?: (answer: string) => boolean;
  /** Whether each node judges the pods of every node. @default {its own pods only} */
  readonly judgesAllPods?: boolean;
}

/** One probe of a table. */
interface CaseProbe {
  readonly from: CasePod;
  /** The pod that has to answer. */
  readonly to: CasePod;
  readonly target: ProbeTarget;
  readonly isAllowed: boolean;
}

/**
 * A denied connection is not always reset. The kernel does not translate the reset for a packet
 * from a port of a bridge, and a client that connected to a Service does not know the address of
 * its endpoint.
 */
const SILENCE_MS = 300;
/** For an answer that must come, on a busy machine. */
const PATIENCE_MS = 4_000;

interface NodePlane {
  readonly node: CaseNode;
  readonly planner: PolicyPlanner;
  readonly dataPlane: CasePlane;
}

/** Disposing of it ends and removes all. */
export class PolicyCaseScene implements AsyncDisposable {
  readonly state: PolicyState = new PolicyState();
  readonly #topology: PolicyCaseTopology;
  readonly #nodes: PolicyCaseNodes;
  readonly #clients: ReadonlyMap<CasePod, ProbeClient>;
  readonly #planes: readonly NodePlane[];

  private constructor(topology: PolicyCaseTopology, nodes: PolicyCaseNodes) {
    this.#topology = topology;
    this.#nodes = nodes;
    this.#clients = new Map(
      [...topology.pods].map(([pod, namespace]) => [pod, ProbeClient.start(namespace)]),
    );
    this.#planes = CASE_NODES.flatMap((node) =>
      IP_FAMILIES.map((family) => ({
        node,
        planner: new PolicyPlanner(this.state, {
          ...{ ...IPV4_PLAN, family, nodeName: node },
          includesRemotePods: nodes.judgesAllPods ?? false,
        }),
        dataPlane: nodes.make(dependencies(topology.nodes[node]), {
          family,
          syncPeriodMs: nodes.syncPeriodMs ?? 30_000,
        }, topology.nodes[node]),
      }))
    );
  }

  /** Creates the scene, with Services and without policies. */
  static async create(nodes: PolicyCaseNodes): Promise<PolicyCaseScene> {
    const topology = await createPolicyCaseTopology();
    try {
      for (const node of Object.values(topology.nodes)) {
        await nodes.prepare?.(node);
        for (const family of IP_FAMILIES) {
          await nodes.loadServices(node, family, caseServices(family));
        }
      }
      await Promise.all([...topology.pods].map(([pod, namespace]) => {
        const listen = IP_FAMILIES.flatMap((family) =>
          CASE_PORTS.map((port) => ({ address: caseAddresses(family).addressOf(pod), port }))
        );
        return startEchoServer(namespace, { name: pod, listen });
      }));
      const scene = new PolicyCaseScene(topology, nodes);
      for (const { dataPlane } of scene.#planes) await dataPlane.start();
      return scene;
    } catch (error) {
      await topology[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The namespace of a node. */
  node(name: CaseNode): Namespace {
    return this.#topology.nodes[name];
  }

  /** The namespace of a pod. */
  pod(name: CasePod): Namespace {
    return this.#topology.pods.get(name)!;
  }

  /** The client in a pod. */
  client(pod: CasePod): ProbeClient {
    return this.#clients.get(pod)!;
  }

  /** The plan of a node. */
  planOf(node: CaseNode, family: IpFamily): PolicyPlanner["plan"] {
    return this.#plane(node, family).planner.plan;
  }

  /** Brings the nodes to a step of a case; blocks are those of one family. */
  async apply(step: PolicyStep, family: IpFamily): Promise<void> {
    const objects = caseObjects(step, caseAddresses(family));
    const pods = objects.pods.map((pod) => {
      const key = objectKey(pod);
      const { holder = key } = step.formerPods?.find((each) => each.key === key) ?? {};
      const podIPs = IP_FAMILIES.map((each) => ({ ip: caseAddresses(each).addressOf(holder) }));
      return {
        ...pod,
        spec: { ...pod.spec, nodeName: nodeOf(holder) },
        status: { ...pod.status, podIPs },
      };
    });
    applyStep(this.state, { ...objects, pods });
    await this.sync();
  }

  /** Syncs the kernel with the current state. */
  async sync(): Promise<void> {
    await Promise.all(this.#planes.map(async ({ planner, dataPlane }) => {
      const changes = planner.update();
      const { quarantined } = await dataPlane.sync(planner.plan, changes);
      if (quarantined.length > 0) throw new Error(`In quarantine: ${JSON.stringify(quarantined)}`);
    }));
  }

  /** Forgets all objects. */
  async clear(): Promise<void> {
    for (const key of [...this.state.pods.keys()]) this.state.setPod(key, undefined);
    for (const key of [...this.state.policies.keys()]) {
      this.state.setPolicy(key, undefined);
      this.state.setClusterPolicy(key, undefined);
    }
    for (const name of CASE_NAMESPACES) this.state.setNamespace(name, undefined);
    await this.sync();
  }

  /** Differences between the kernel of each node and its plans. */
  async differences(): Promise<readonly unknown[]> {
    const found = await Promise.all(
      this.#planes.map(({ planner, dataPlane }) => dataPlane.compare(planner.plan)),
    );
    return found.flat();
  }

  /**
   * Connections that differ from the expectation of a step, as sentences. Every pod probes all
   * other pods at once.
   */
  async faults({ expected }: PolicyStep, family: IpFamily): Promise<readonly string[]> {
    const traced = expected.filter(({ protocol }) => protocol === "SCTP");
    const sent = expected.flatMap((expectation) => probesOf(expectation, family));
    return [
      ...traced.flatMap((expectation) => this.#traceFaults(expectation, family)),
      ...await this.probeFaults(sent),
    ];
  }

  /** Probes that did not end as they should. */
  async probeFaults(probes: readonly CaseProbe[]): Promise<readonly string[]> {
    const first = await this.#wrong(probes, SILENCE_MS);
    // A busy machine may be late; and a flow of UDP may have had the ports of an earlier one.
    const doubtful = first.filter(({ probe: { target }, answer }) =>
      answer === "silent" || target.protocol === "UDP"
    );
    const again = await this.#wrong(doubtful.map(({ probe }) => probe), PATIENCE_MS);
    return [...first.filter((each) => !doubtful.includes(each)), ...again].map((
      { probe: { from, target, isAllowed }, answer },
    ) =>
      `${from} → ${JSON.stringify(target)}: ${answer}, expected ${isAllowed ? "answer" : "denial"}`
    );
  }

  async #wrong(
    probes: readonly CaseProbe[],
    timeoutMs: number,
  ): Promise<readonly { readonly probe: CaseProbe; readonly answer: string }[]> {
    const bySource = [...Map.groupBy(probes, ({ from }) => from)];
    const found = await Promise.all(bySource.map(async ([from, own]) => {
      const answers = await this.client(from).whoAll(own.map(({ target }) => target), timeoutMs);
      return own.map((probe, index) => ({ probe, answer: answers[index]! }));
    }));
    return found.flat().filter(({ probe, answer }) => !this.#isRight(probe, answer));
  }

  #isRight({ to, isAllowed }: CaseProbe, answer: string): boolean {
    const { isDenial = () => false } = this.#nodes;
    if (isAllowed) return answer === to;
    return answer === "refused" || answer === "silent" || isDenial(answer);
  }

  /** No program here speaks SCTP, so the rules of both nodes are walked instead. */
  #traceFaults(expectation: PolicyExpectation, family: IpFamily): readonly string[] {
    const { protocol, port } = expectation;
    const { addressOf } = caseAddresses(family);
    return pairs().flatMap(({ from, to }) => {
      const answers = [...new Set([nodeOf(from), nodeOf(to)])].map((node) => {
        const { planner: { plan }, dataPlane: { tool } } = this.#plane(node, family);
        const connection = {
          from: addressOf(from),
          to: addressOf(to),
          transport: { protocol, port: parsePort(port) },
        };
        const { isAllowed = isAccepted[tool] } = this.#nodes;
        return isAllowed(plan, connection);
      });
      if (answers.every(Boolean) === isExpected(expectation, { from, to })) return [];
      return [`${from} → ${to} ${protocol} ${port}: allowed ${answers}`];
    });
  }

  #plane(node: CaseNode, family: IpFamily): NodePlane {
    return this.#planes.find((each) => each.node === node && each.dataPlane.family === family)!;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { dataPlane } of this.#planes) await dataPlane[Symbol.asyncDispose]();
    await this.#topology[Symbol.asyncDispose]();
  }
}

/** Whether the rules that each tool is given let a connection through. */
const isAccepted = {
  nftables: (plan: PolicyPlan, connection: Connection) =>
    walkNft(plan, connection).verdict === "ACCEPT",
  iptables: (plan: PolicyPlan, connection: Connection) =>
    walkIptables(plan, connection).verdict === "ACCEPT",
} as const;

/** Every pair of different pods. */
function pairs(): readonly { readonly from: CasePod; readonly to: CasePod }[] {
  return casePods().flatMap((from) =>
    casePods().filter((to) => to !== from).map((to) => ({ from, to }))
  );
}

function probesOf(expectation: PolicyExpectation, family: IpFamily): readonly CaseProbe[] {
  const { protocol, port } = expectation;
  if (protocol === "SCTP") return [];
  return pairs().map(({ from, to }) => ({
    from,
    to,
    target: { protocol, port, address: clusterIpOf(to, family) },
    isAllowed: isExpected(expectation, { from, to }),
  }));
}

function dependencies({ name }: Namespace): RulePlaneEdges {
  return {
    clock: systemClock,
    commands: {
      run: (program, args, options) =>
        systemCommandRunner.run("ip", ["netns", "exec", name, program, ...args], options),
    },
    logger: new MemoryLogger(),
    random: () => 0,
  };
}
