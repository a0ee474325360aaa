/**
 * Answers the questions of the tools about NetworkPolicies, from objects that were read or from the
 * running process.
 *
 * @module
 */
import { objectKey } from "../../api/kind.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { POD } from "../../api/kinds/pod.ts";
import { BadQuestion, type ControlRoutes } from "../control/control_server.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { type IpAddress, ipFamilyOf } from "../../net/ip_address.ts";
import {
  type Connection,
  judgeConnection,
  type Judgement,
  viewCluster,
} from "../../policy/judge_connection.ts";
import type { PodKey, PolicyKey } from "../../policy/policy_plan.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import { askControl, requestStatus } from "../control/control_client.ts";

/** Questions about the policies of a cluster. */
export interface PolicyQuestions {
  /** Empty where there is no such pod. */
  addressesOf(pod: string): Promise<readonly IpAddress[]>;
  /** Judges each of the connections, all of one IP family. */
  judge(connections: readonly Connection[]): Promise<readonly Judgement[]>;
}

/** The policies of objects that were read; `undefined` = no pods and policies are among them. */
export function policyStateOf(...sets: readonly InformerSet[]): PolicyState | undefined {
  const state = new PolicyState();
  for (const informers of sets) {
    if (!informers.kinds.has(NETWORK_POLICY.kind)) continue;
    for (const namespace of informers.of(NAMESPACE).values()) {
      state.setNamespace(namespace.metadata.name, namespace);
    }
    for (const pod of informers.of(POD).values()) state.setPod(objectKey(pod) as PodKey, pod);
    for (const policy of informers.of(NETWORK_POLICY).values()) {
      state.setPolicy(objectKey(policy) as PolicyKey, policy);
    }
  }
  return state.pods.size > 0 || state.policies.size > 0 ? state : undefined;
}

/** Answers from a state. */
export function policyQuestions(state: PolicyState): PolicyQuestions {
  return {
    addressesOf: (pod) => Promise.resolve(state.pods.get(pod as PodKey)?.addresses ?? []),
    judge(connections) {
      const [first] = connections;
      if (first === undefined) return Promise.resolve([]);
      const view = viewCluster(state, ipFamilyOf(first.to));
      return Promise.resolve(connections.map((each) => judgeConnection(view, each)));
    },
  };
}

/** Returns the control socket routes of the policy controller. */
export function policyRoutes({ state }: { readonly state: PolicyState }): ControlRoutes {
  const questions = policyQuestions(state);
  return {
    "/policy/pod": async (query) => ({
      addresses: await questions.addressesOf(asked(query, "name")),
    }),
    "/policy/judge": async (query) => ({
      judgements: await questions.judge(connectionsOf(asked(query, "connections"))),
    }),
  };
}

function asked(query: URLSearchParams, name: string): string {
  const value = query.get(name);
  if (value !== null) return value;
  throw new BadQuestion(`Cannot answer without '${name}'`);
}

/** Only the own command line asks this: a wrong question gets a wrong answer, and nothing else. */
function connectionsOf(text: string): readonly Connection[] {
  try {
    const value: unknown = JSON.parse(text);
    if (Array.isArray(value)) return value;
  } catch {
    // The answer is the same.
  }
  throw new BadQuestion("Cannot judge connections: 'connections' has to be a list in JSON");
}

/** Asks the running process; `undefined` = it enforces no policies. */
export async function runningPolicies(socket: string): Promise<PolicyQuestions | undefined> {
  const { controllers = [] } = await requestStatus(socket, { brief: true });
  if (!controllers.some(({ controller }) => controller === "network-policy")) return undefined;
  const ask = async (path: string, query: Readonly<Record<string, string>>): Promise<unknown> =>
    await askControl(socket, { route: `/policy/${path}?${new URLSearchParams(query)}` });
  return {
    addressesOf: async (name) =>
      (await ask("pod", { name }) as { readonly addresses: readonly IpAddress[] }).addresses,
    judge: async (connections) =>
      (await ask("judge", { connections: JSON.stringify(connections) }) as {
        readonly judgements: readonly Judgement[];
      }).judgements,
  };
}
