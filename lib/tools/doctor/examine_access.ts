import type { LoadedConfiguration } from "../../config/load.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { loadKubeAuth } from "../../kube/kubeconfig.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import type { HostFinding } from "../../proxy/host_checks.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { findMissingAccess, type NeededAccess } from "../../app/run/controller_source.ts";
import { withApiClient } from "./examine_api.ts";

/** The edges of {@linkcode examineAccess}. */
export type AccessDependencies = Pick<Dependencies, "clock" | "process" | "commands">;

interface AccessExamination {
  readonly relay: Pick<LoadedConfiguration["relay"], "manifests" | "master">;
  readonly signal: AbortSignal;
  readonly needed: NeededAccess;
  /** The kubeconfig of the identity; empty = the pod's service account. */
  readonly kubeconfig: string;
  /** The flag that names another kubeconfig than that of Services, and its value; empty = not given. */
  readonly flag: { readonly name: string; readonly value: string };
  /** Identifier of the findings. */
  readonly id: string;
  /** The effect of a missing permission, as one sentence without a full stop. */
  readonly summary: string;
}

/** Asks the API server for the permissions that a controller needs. */
export async function examineAccess(
  dependencies: AccessDependencies,
  { relay, signal, needed, kubeconfig, flag, id, summary }: AccessExamination,
): Promise<readonly HostFinding[]> {
  const { clock, commands, process: { env } } = dependencies;
  const isGiven = kubeconfig || relay.master || env("KUBECONFIG") || env("KUBERNETES_SERVICE_HOST");
  if (relay.manifests.length > 0 || !isGiven) return [];
  try {
    const auth: KubeAuth = await loadKubeAuth(
      { clock, logger: SILENT_LOGGER, commands },
      {
        ...(kubeconfig !== "" && { kubeconfig }),
        ...(relay.master !== undefined && { master: relay.master }),
        env,
      },
    );
    const missing = await withApiClient(
      dependencies,
      { auth, signal },
      (client) => findMissingAccess(client, needed, signal),
    );
    if (missing === undefined) return [];
    const { method, file } = auth.describe();
    const evidence = [
      `no right to ${missing.missing.join(", ")}, by ${method}${file ? ` of ${file}` : ""}`,
      `missing rule: ${missing.clusterRole}`,
    ];
    return [{ id, severity: "warning", summary, evidence, cure: missing.cure }];
  } catch (error) {
    signal.throwIfAborted();
    // Trouble with the connection of Services is a finding of its own.
    if (flag.value === "") return [];
    return [{
      id: `${id}-unknown`,
      severity: "warning",
      summary: `The API server could not be asked with the kubeconfig of --${flag.name}`,
      evidence: [`${flag.value}: ${messageOf(error)}`],
      cure: `see that --${flag.name} names a kubeconfig that this user can read`,
    }];
  }
}
