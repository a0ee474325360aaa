/**
 * What is asked of the machine about other software, with what the running mode keeps left out.
 *
 * @module
 */
import type { CleanupReport } from "../../../lib/proxy/data_plane.ts";
import type {
  FindingOptions,
  HostFinding,
  KubeProxyRemovalOptions,
} from "../../../lib/proxy/host_checks.ts";
import { findForeignSoftware, type ForeignSoftwareEdges } from "./find_foreign_software.ts";
import { ownStateOfMode } from "./own_state_of_mode.ts";
import { removeKubeProxy } from "./remove_kube_proxy.ts";

/** {@linkcode findForeignSoftware}, with the mode that runs by its name. */
export async function findingsBesideMode(
  edges: ForeignSoftwareEdges,
  { mode, ...options }: FindingOptions = {},
): Promise<readonly HostFinding[]> {
  // Ports are asked before anything is chosen: no tool is started for them.
  if (options.scope === "ports") return await findForeignSoftware(edges, options);
  const own = await ownStateOfMode(edges, { mode, ...options });
  return await findForeignSoftware(edges, { ...options, own });
}

/** {@linkcode removeKubeProxy}, with the mode that runs by its name. */
export async function removeBesideMode(
  edges: ForeignSoftwareEdges,
  { mode, ...options }: KubeProxyRemovalOptions,
): Promise<CleanupReport> {
  const own = await ownStateOfMode(edges, { mode, ...options });
  return await removeKubeProxy(edges, { ...options, own });
}
