/**
 * Removes the policy rules that earlier runs wrote by another tool.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type {
  PolicyBackendDependencies,
  PolicyBackendOptions,
  PolicyBackendTable,
  PolicyTool,
} from "./policy_backend.ts";

interface OtherToolsDependencies extends PolicyBackendDependencies {
  readonly logger: Logger;
  readonly policyBackends?: PolicyBackendTable;
}

/** The tool whose rules stay. */
interface OtherToolsOptions extends Omit<PolicyBackendOptions, "family"> {
  readonly tool: PolicyTool;
  readonly signal: AbortSignal;
}

/**
 * To be called after the rules of this run are written. Rules of another tool would deny by policies of
 * that time. Never rejects: a host often lacks the other tool.
 */
export async function removeOtherTools(
  dependencies: OtherToolsDependencies,
  { tool, signal, ...options }: OtherToolsOptions,
): Promise<void> {
  const { logger, policyBackends = {} } = dependencies;
  for (const [other, create] of Object.entries(policyBackends)) {
    if (other === tool) continue;
    for (const family of IP_FAMILIES) {
      if (signal.aborted) return;
      try {
        await using backend = create(dependencies, { ...options, family });
        const { removed, failed } = await backend.cleanup();
        for (const what of removed) {
          logger.info("Removed policy rules of another tool", { other, what });
        }
        for (const what of failed) {
          logger.verbose(1, "Cannot remove policy rules of another tool", { other, what });
        }
      } catch (error) {
        const reason = messageOf(error);
        logger.verbose(1, "Cannot look for policy rules of another tool", { other, reason });
      }
    }
  }
}
