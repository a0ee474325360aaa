/**
 * Configuration files that must be accepted or refused. To add a case, add a file; the first line of
 * an invalid one says, as a comment, what the message must contain.
 *
 * @module
 */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  ConfigurationError,
  loadConfiguration,
  type LoadedConfiguration,
} from "../../lib/config/load.ts";

const FOLDER = new URL(".", import.meta.url).pathname;

function load(path: string): Promise<LoadedConfiguration> {
  return loadConfiguration(
    { readTextFile: (file) => Deno.readTextFile(file), uid: 0, env: () => undefined },
    { flags: { config: path } },
  );
}

for (const { name } of Deno.readDirSync(`${FOLDER}valid`)) {
  Deno.test(`loadConfiguration() accepts valid/${name} without a warning`, async () => {
    const { notices } = await load(`${FOLDER}valid/${name}`);
    assertEquals(notices.filter(({ level }) => level === "warn"), []);
  });
}

for (const { name } of Deno.readDirSync(`${FOLDER}invalid`)) {
  Deno.test(`loadConfiguration() refuses invalid/${name} and says why`, async () => {
    const path = `${FOLDER}invalid/${name}`;
    const expected = (await Deno.readTextFile(path)).split("\n")[0]!.replace(/^# /, "");
    const { problems } = await assertRejects(() => load(path), ConfigurationError);
    assertEquals(problems.length, 1, problems.join("\n"));
    assertStringIncludes(problems[0]!, expected);
    assertStringIncludes(problems[0]!, path);
  });
}
