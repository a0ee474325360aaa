import { assertEquals, assertStringIncludes } from "@std/assert";
import { readConfigurationFile } from "./configuration_file.ts";
import { readConfigurationText } from "./read_configuration_text.ts";

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
