/**
 * Says in words why policies allow a connection, or deny it.
 *
 * @module
 */
import type { EndVerdict, Judgement } from "./judge_connection.ts";
import type { Direction, PolicyKey } from "./policy_plan.ts";

/** Most policies that a sentence names. */
const MOST_NAMED = 4;

/** Returns the reason why one end allows or denies the connection, without a full stop. */
export function endSentence(direction: Direction, verdict: EndVerdict): string {
  const end = direction === "egress" ? "sender" : "receiver";
  switch (verdict.kind) {
    case "unknown":
      return `the ${end} is no pod, so no NetworkPolicy applies at this end`;
    case "closed":
      return `the ${end} is in the pod range, but is no pod yet: closed until it is one`;
    case "not-isolated":
      return `no NetworkPolicy isolates ${verdict.pod} for ${direction}`;
    case "always":
      return direction === "egress"
        ? `${verdict.pod} always reaches itself and its own node`
        : `${verdict.pod} always accepts itself and its own node`;
    case "allowed":
      return `NetworkPolicy ${verdict.policy} lets it ${
        direction === "egress" ? "out of" : "into"
      } ` +
        `${verdict.pod}: spec.${direction}[${verdict.index}]`;
    case "denied": {
      const [names, isOne] = [policyNames(verdict.policies), verdict.policies.length === 1];
      const isolates = `${names} ${isOne ? "isolates" : "isolate"} ${verdict.pod} for ${direction}`;
      return verdict.excess === undefined
        ? `${isolates}, and none of ${isOne ? "its" : "their"} rules allows it`
        : `${isolates}, and allow${isOne ? "s" : ""} nothing: there are too many rules for this ` +
          `pod, or for the pods of its namespace on the node (${verdict.excess} for this one)`;
    }
  }
}

/**
 * Returns the end that denies the connection and the reason, the sender first; `undefined` = it is
 * allowed.
 */
export function denialSentence(
  { egress, ingress }: Pick<Judgement, "egress" | "ingress">,
): string | undefined {
  const isDenied = ({ kind }: EndVerdict) => kind === "denied" || kind === "closed";
  if (isDenied(egress)) return `at the sender: ${endSentence("egress", egress)}`;
  return isDenied(ingress) ? `at the receiver: ${endSentence("ingress", ingress)}` : undefined;
}

/** Names policies in a sentence, not all of many. */
export function policyNames(policies: readonly PolicyKey[]): string {
  if (policies.length === 1) return `NetworkPolicy ${policies[0]}`;
  const shown = policies.slice(0, MOST_NAMED);
  const more = policies.length - shown.length;
  const last = more > 0 ? `${more} more` : shown.pop();
  return `NetworkPolicies ${shown.join(", ")} and ${last}`;
}
