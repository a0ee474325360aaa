/**
 * Tests how little of the program a verb loads, and that V8 has its code beforehand: by counts, because
 * times depend on the machine.
 */
import { assert, assertEquals } from "@std/assert";
import { testNeeding } from "../support/requirement.ts";
import { BUILT, Executable, EXECUTABLE_REQUIREMENTS } from "./executable.ts";

const test = testNeeding("tests/binary/loaded_modules_test.ts", EXECUTABLE_REQUIREMENTS);

/** The most bytes of scripts that a verb loads, of 1.3 million, and the modules of Node.js. */
const LOADED: readonly (readonly [args: string[], mostBytes: number, ofNode: string[]])[] = [
  [["--version"], 100_000, []],
  [["--help"], 215_000, []],
  [["complete", "--", ".st"], 215_000, []],
  // A timer loads it.
  [["status"], 215_000, ["node:timers"]],
  [["explain", "node", "10.96.0.10:53/UDP"], 215_000, ["node:timers"]],
  [["diff"], 215_000, ["node:timers"]],
];

test("a verb of the self-extracting form loads only what it needs, and all of it from the code cache", async (t) => {
  const script = new TextDecoder("latin1").decode(
    (await Deno.readFile(BUILT)).subarray(0, 32_768),
  );
  if (!script.startsWith("#!/bin/sh")) {
    // deno-lint-ignore no-console -- the reason why nothing is tested
    return console.log("not tested: `deno compile` makes one script");
  }
  const [, flags = ""] = /^\s*exec "\$place\/kube-relay" run -q (.*) "\$place\/\$script"/m.exec(
    script,
  )!;
  await using executable = await Executable.create("root");
  assertEquals((await executable.run(["--version"])).code, 0);
  const [place] = await Array.fromAsync(Deno.readDir(`${executable.directory}/cache`));
  const folder = `${executable.directory}/cache/${place!.name}`;
  for (const [args, mostBytes, ofNode] of LOADED) {
    await t.step(args.join(" "), async () => {
      const { stderr } = await new Deno.Command(`${folder}/kube-relay`, {
        args: [
          ...["run", "--log-level=debug", ...flags.split(" "), `${folder}/main.js`, args[0]!],
          ...(args[0]!.startsWith("--") ? [] : [`--control-socket=${folder}/none`]),
          ...args.slice(1),
        ],
        env: { DENO_DIR: `${folder}/v8`, HOME: folder },
        stdin: "null",
      }).output();
      const text = new TextDecoder().decode(stderr);
      const named = (pattern: RegExp) => [...text.matchAll(pattern)].map(([, name]) => name!);
      const scripts = named(/fetch_no_follow - specifier: (file:\S+)/g);
      assert(scripts.includes(`file://${folder}/main.js`), text);
      const files = await Promise.all(scripts.map((url) => Deno.stat(new URL(url))));
      const total = files.reduce((sum, { size }) => sum + size, 0);
      assert(total <= mostBytes, `${total} bytes of ${scripts.join(", ")}`);
      assertEquals(named(/V8 code cache (?:hit )?for ES module: (node:[^,]+)/g), ofNode);
      const cached = named(/V8 code cache hit for ES module: (file:[^,]+)/g);
      assertEquals(scripts.filter((url) => !cached.includes(url)), [], "compiled at each start");
    });
  }
});
