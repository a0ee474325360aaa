/** The packed chart, rendered by helm. */
import { assert } from "@std/assert";
import { fileURLToPath } from "node:url";
import { VERSION } from "../../lib/config/version.ts";
import type { RawObject } from "../conformance/server.ts";
import { parseManifest } from "../support/docs/deploy_files.ts";
import { runTool } from "../support/drivers/run_tool.ts";
import { file, program, type Requirement } from "../support/requirement.ts";
import { withFolder } from "../support/with_folder.ts";
import type { Pod } from "./containerd.ts";

const ARCHIVE = fileURLToPath(new URL(`../../dist/kube-relay-${VERSION}.tgz`, import.meta.url));

/** The requirements of the functions below. */
export const CHART_REQUIREMENTS: readonly Requirement[] = [
  program("helm"),
  file(ARCHIVE, "deploy/release/chart.sh dist"),
];

/** Values, as a file that a user writes. */
export type Values = Readonly<Record<string, unknown>>;

/** Runs `helm template` or `helm lint` with values. Throws with its words. */
export async function helm(verb: "template" | "lint", values: Values): Promise<string> {
  return await withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/values.yaml`, JSON.stringify(values));
    const words = verb === "template" ? ["template", "kube-relay"] : ["lint", "--strict"];
    const options = ["--namespace", "kube-system", "--values", `${folder}/values.yaml`];
    return await runTool("helm", [...words, ARCHIVE, ...options]);
  });
}

/** The objects that the chart makes, sorted by kind and name. */
export async function render(values: Values): Promise<RawObject[]> {
  return sorted(parseManifest(await helm("template", values), "the output of helm"));
}

/** Objects by kind and name. */
export function sorted(objects: readonly RawObject[]): RawObject[] {
  const key = ({ kind, metadata }: RawObject) => `${kind}/${metadata.name}`;
  return objects.toSorted((a, b) => key(a) < key(b) ? -1 : 1);
}

/** The pod of a DaemonSet among objects. */
export function podOf(objects: readonly RawObject[], name = "kube-relay"): Pod {
  const object = objects.find(({ kind, metadata }) =>
    kind === "DaemonSet" && metadata.name === name
  ) as unknown as { spec: { template: { spec: Pod } } } | undefined;
  assert(object !== undefined, `there is no DaemonSet ${name}`);
  return object.spec.template.spec;
}

/** The text of `config.conf` in the ConfigMap among objects, if there is one. */
export function configOf(objects: readonly RawObject[]): string | undefined {
  const config = objects.find(({ kind }) => kind === "ConfigMap") as unknown as
    | { data: Record<string, string> }
    | undefined;
  return config?.data["config.conf"];
}
