import { readYaml } from "../../../lib/config/yaml_source.ts";
import type { RawObject } from "../../conformance/server.ts";

const DEPLOY = new URL("../../../deploy/", import.meta.url);

/** The manifests of `deploy/kubernetes`. */
export const MANIFESTS: readonly string[] = [
  "kubernetes/rbac.yaml",
  "kubernetes/network-policy-rbac.yaml",
  "kubernetes/routing-rbac.yaml",
  "kubernetes/nodes-rbac.yaml",
  "kubernetes/kubeadm.yaml",
  "kubernetes/kubeadm-userspace.yaml",
  "kubernetes/k3s.yaml",
  "kubernetes/cleanup.yaml",
];

/** The text of a file below `deploy/`. */
export async function readDeployFile(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, DEPLOY));
}

/** The objects of a manifest below `deploy/`. Throws where the YAML is wrong. */
export async function readManifest(path: string): Promise<readonly RawObject[]> {
  return parseManifest(await readDeployFile(path), `deploy/${path}`);
}

/** The objects of a text. Throws where the YAML is wrong. */
export function parseManifest(text: string, file: string): readonly RawObject[] {
  const { documents, errors } = readYaml(text, { file });
  if (errors.length > 0) {
    const problems = errors.map(({ line, message }) => `${file}:${line}: ${message}`);
    throw new Error(`Cannot read a manifest: ${problems.join("; ")}`);
  }
  return documents.map(({ value }) => value as RawObject).filter((value) => value !== null);
}
