/**
 * Finds the rules and sets of policies that a tool refused.
 *
 * @module
 */
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import type { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { IptablesError } from "../../netfilter/iptables/restore_error.ts";
import { BatchRefusal } from "../../netfilter/tool_batch.ts";
import { listChainName, type PolicyChain } from "./base_chains.ts";
import { peersName } from "./layout.ts";

interface FailedWrite {
  readonly plan: PolicyPlan;
  /** Chains that were to be written. */
  readonly written: readonly PolicyChain[];
  readonly error: unknown;
}

/** The chain in which rules are tested. No rule jumps to it. */
const TRIAL = "KUBE-RELAY-POLICY-TRIAL";

/** Whether a tool refused its input. */
export function isRefusal(error: unknown): boolean {
  return error instanceof BatchRefusal || isRefusedRule(error);
}

/** Finds the refused lines of lists or names of sets. Returns none if another part was refused. */
export async function findRefusedParts(
  { runner }: { readonly runner: IptablesRunner },
  { plan, written, error }: FailedWrite,
): Promise<readonly string[]> {
  if (error instanceof BatchRefusal) return refusedSets(plan, error.message);
  if (!isRefusedRule(error)) return [];
  const lists = new Set<string>([...plan.lists.keys()].map(listChainName));
  const chains = written.filter(({ name }) => lists.has(name));
  const [, name, rule = ""] = /^-A (\S+) (.*)$/.exec(error.line?.text ?? "") ?? [];
  // The last rule of a list belongs to no policy.
  const rules = chains.flatMap((chain) => chain.rules.slice(0, -1));
  const isNamed = chains.some((chain) => chain.name === name) && rules.includes(rule);
  return isNamed ? [rule] : await narrow(runner, rules);
}

function refusedSets({ peers, family }: PolicyPlan, message: string): readonly string[] {
  // The name of a set that is to replace another one is truncated.
  const start = /'(?:add|create|swap) (?:NEW-)?(\S+P-\S+) /.exec(message)?.[1];
  if (start === undefined) return [];
  return [...peers.keys()].map((id) => peersName(id, family))
    .filter((name) => name.startsWith(start));
}

/** Finds the rule by bisection, because some tools name only the COMMIT. */
async function narrow(
  runner: IptablesRunner,
  rules: readonly string[],
): Promise<readonly string[]> {
  if (rules.length === 0 || !await isRefused(runner, rules)) return [];
  if (rules.length === 1) return rules;
  const half = rules.length >> 1;
  const first = await narrow(runner, rules.slice(0, half));
  return first.length > 0 ? first : await narrow(runner, rules.slice(half));
}

async function isRefused(runner: IptablesRunner, rules: readonly string[]): Promise<boolean> {
  const chain = `:${TRIAL} - [0:0]`;
  try {
    const added = rules.map((rule) => `-A ${TRIAL} ${rule}`);
    await runner.restore({ lines: ["*filter", chain, ...added, "COMMIT"] });
  } catch (error) {
    if (isRefusedRule(error)) return true;
    throw error;
  }
  await runner.restore({ lines: ["*filter", chain, `-X ${TRIAL}`, "COMMIT"] });
  return false;
}

function isRefusedRule(error: unknown): error is IptablesError {
  return error instanceof IptablesError && error.kind === "refused";
}
