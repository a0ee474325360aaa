import { assertEquals, assertStringIncludes } from "@std/assert";
import { readConfigurationFile, readConfigurationText } from "./configuration_file.ts";

const HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

function read(text: string) {
  return readConfigurationFile({ readTextFile: () => Promise.resolve(text) }, "file");
}

Deno.test("readConfigurationFile() skips empty documents, and finds no field in a list", async () => {
  for (const text of [`---\n${HEAD}---\n`, `# one\n---\n# two\n---\n${HEAD}---\n---\n`]) {
    const { configuration, problems, warnings } = await read(text);
    assertEquals([configuration?.oomScoreAdj, problems, warnings], [-999, [], []]);
  }
  assertEquals((await read("[1]")).warnings, [], "what is no block has no fields");
});

Deno.test("readConfigurationFile() names the first 20 unknown fields, and counts the others", async () => {
  const fields = Array.from({ length: 1_000 }, (_, index) => `field${index}: 1\n`);
  const { warnings } = await read(HEAD + fields.join(""));
  assertEquals(warnings.length, 21);
  assertEquals(warnings[19]?.at, "file:22:1");
  assertEquals(warnings[20], { at: "file", reason: "980 more fields are unknown and ignored" });
});

Deno.test("readConfigurationText() reports an endless file as a problem", async () => {
  const { configuration, problems } = await readConfigurationFile(
    { readTextFile: readConfigurationText },
    "/dev/zero",
  );
  assertEquals([configuration, problems.length], [undefined, 1]);
  assertStringIncludes(
    problems[0]!,
    "--config: Cannot read configuration file '/dev/zero': it has",
  );
});
