/**
 * The pages whose commands people copy.
 *
 * @module
 */

const ROOT = new URL("../../../", import.meta.url);

/** Their paths. */
export const COMMAND_PAGES: readonly string[] = [
  "README.md",
  "CONTRIBUTING.md",
  "deploy/README.md",
  "docs/helm.md",
  "docs/k3s.md",
  "docs/kubeadm.md",
  "docs/load_balancer.md",
  "docs/bgp.md",
  "docs/pod_network.md",
  "docs/upgrade.md",
  "docs/releasing.md",
  "docs/going_back.md",
  "docs/check.md",
  "docs/troubleshooting.md",
  "docs/render.md",
  "docs/diff.md",
  "docs/dump.md",
  "docs/explain.md",
  "docs/trace.md",
  "docs/monitoring.md",
  "docs/runbooks.md",
  "docs/nftables.md",
  "docs/stories.md",
];

/** The text of a page. */
export async function readPage(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, ROOT));
}
