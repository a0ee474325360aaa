/**
 * Chooses the tool that enforces NetworkPolicies: compares the request with the tools of this host.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { missingText, supportOf } from "../../proxy/mode_support.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { Dependencies } from "../dependencies.ts";
import { POLICY_TOOLS, type PolicyTool } from "./policy_backend.ts";

interface ToolDependencies {
  readonly hostChecks: Pick<Dependencies["hostChecks"], "probeMode">;
}

/** The inputs of the choice besides the host. */
interface ToolChoice {
  /** The value of `networkPolicy.mode`. */
  readonly request: string;
  /** The mode of Services, if one runs: its tool was found to work. */
  readonly serviceMode?: BackendMode;
  readonly signal?: AbortSignal;
}

/** A tool, and why it cannot be used here. */
interface ToolVerdict {
  readonly tool: PolicyTool;
  /** Absent where it can. */
  readonly refusal?: string;
}

/**
 * Chooses. A tool that was asked for by name is never replaced: it is returned with its refusal. So is
 * the best one if none works, as a tool may be installed later.
 */
export async function findPolicyTool(
  { hostChecks }: ToolDependencies,
  { request, serviceMode, signal }: ToolChoice,
): Promise<ToolVerdict> {
  let best: ToolVerdict | undefined;
  for (const tool of POLICY_TOOLS) {
    if (request !== "auto" && request !== tool) continue;
    if (serviceMode === tool) return { tool };
    const { families, missing } = supportOf(await hostChecks.probeMode(tool, signal && { signal }));
    if (families.length > 0) return { tool };
    best ??= { tool, refusal: missingText(missing) };
  }
  if (best) return best;
  throw new TypeError(`No data plane of NetworkPolicy has the name '${request}'`);
}

/**
 * As {@linkcode findPolicyTool}, with a line of the log. `undefined` = no tool works, none was asked for
 * by name, and the mode of Services relays: what it relays is judged without rules.
 */
export async function choosePolicyTool(
  { logger, ...dependencies }: ToolDependencies & { readonly logger: Logger },
  choice: ToolChoice,
): Promise<PolicyTool | undefined> {
  const { tool, refusal: reason } = await findPolicyTool(dependencies, choice);
  const { request, serviceMode } = choice;
  const isRelayed = serviceMode !== undefined && MODE_TRAITS[serviceMode].forwardsItself;
  if (reason === undefined) {
    logger.info("Chose how NetworkPolicies are enforced", { tool });
    return tool;
  }
  if (isRelayed && request === "auto") {
    logger.warn(
      "NetworkPolicies are enforced for relayed connections only; direct pod-to-pod traffic is " +
        "not covered: the host lacks what rules need",
      { reason },
    );
    return undefined;
  }
  logger.error(
    isRelayed
      ? "NetworkPolicies are enforced for relayed connections only: the host lacks what rules " +
        "for direct pod-to-pod traffic need, and it is tried again"
      : "NetworkPolicies are NOT enforced: the host lacks what they need; Services work, and it is " +
        "tried again",
    { tool, reason },
  );
  return tool;
}
