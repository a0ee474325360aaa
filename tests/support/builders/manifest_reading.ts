import { assertEquals } from "@std/assert";
import type { KubeObject } from "../../../lib/api/kind.ts";
import { NAMESPACE } from "../../../lib/api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../../lib/api/kinds/network_policy.ts";
import { POD } from "../../../lib/api/kinds/pod.ts";
import { readYaml } from "../../../lib/config/yaml_source.ts";
import {
  type ManifestOutcome,
  readManifestObjects,
} from "../../../lib/kube/manifests/manifest_objects.ts";
import { formatProblem, ManifestProblems } from "../../../lib/kube/manifests/manifest_problem.ts";
import { SERVICE_KINDS } from "../../../lib/app/service/service_subscriptions.ts";
import { StringTable } from "../../../lib/kube/string_table.ts";

const FILE = "a.yaml";

/** The result of reading a text. */
export interface ManifestReadResult {
  readonly outcomes: readonly ManifestOutcome[];
  readonly objects: readonly KubeObject[];
  readonly problems: readonly string[];
}

/** Reads all objects of the file `a.yaml` with this text, which must be YAML. */
export function readManifest(text: string, quick = true): ManifestReadResult {
  const problems = new ManifestProblems(FILE);
  const strings = new StringTable();
  const kinds = new Map(
    [...SERVICE_KINDS, POD, NAMESPACE, NETWORK_POLICY].map((spec) => [spec.kind, spec]),
  );
  const { documents, errors } = readYaml(text, { file: FILE, quick });
  assertEquals(errors, []);
  const outcomes = documents.flatMap((document) =>
    readManifestObjects(document, { problems, strings, kinds })
  );
  return {
    outcomes,
    objects: outcomes.flatMap((outcome) =>
      outcome.outcome === "read" ? [outcome.entry.object] : []
    ),
    problems: problems.list.map(formatProblem),
  };
}

/** The one object of a text without problems. */
export function readOneManifest(text: string): KubeObject {
  const { objects, problems } = readManifest(text);
  assertEquals(problems, []);
  assertEquals(objects.length, 1);
  return objects[0]!;
}

/** A Service `default/web` with this spec, which stands in line 5. */
export function serviceText(spec: string): string {
  return `apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec: ${spec}\n`;
}
