import { assertEquals } from "@std/assert";
import type { KubeObject } from "../../../lib/api/kind.ts";
import { NAMESPACE } from "../../../lib/api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../../lib/api/kinds/network_policy.ts";
import { POD } from "../../../lib/api/kinds/pod.ts";
import { InformerSet } from "../../../lib/kube/informer_set.ts";
import { ManifestFileContent } from "../../../lib/kube/manifests/manifest_file.ts";
import { formatProblem } from "../../../lib/kube/manifests/manifest_problem.ts";
import { SERVICE_KINDS } from "../../../lib/app/service/service_subscriptions.ts";
import { StringTable } from "../../../lib/kube/string_table.ts";

const FILE = "a.yaml";

/** The result of reading a text. */
export interface ManifestReadResult {
  readonly content: ManifestFileContent;
  readonly objects: readonly KubeObject[];
  readonly problems: readonly string[];
}

/** Reads all objects of the file `a.yaml` with this text, which must be YAML. */
export function readManifest(text: string): ManifestReadResult {
  const informers = new InformerSet();
  for (const spec of [...SERVICE_KINDS, POD, NAMESPACE, NETWORK_POLICY]) informers.subscribe(spec);
  const options = { file: FILE, fileTimeMs: 0, informers, strings: new StringTable() };
  const content = new ManifestFileContent(options);
  content.readPart({ text, origin: { line: 1, column: 1 } });
  assertEquals(content.isBroken, false);
  return {
    content,
    objects: [...content.objects.values()].map(({ entry }) => entry.object),
    problems: content.problems.list.map(formatProblem),
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
