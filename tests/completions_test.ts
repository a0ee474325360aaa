/**
 * Completion and manual page as the shells and groff themselves read them.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { COMMANDS } from "../lib/tools/cli/commands/mod.ts";
import { bashCompletion } from "../lib/tools/cli/reference/bash_completion.ts";
import { completionTable } from "../lib/tools/cli/reference/completion_table.ts";
import { fishCompletion } from "../lib/tools/cli/reference/fish_completion.ts";
import { createManCommand } from "../lib/tools/cli/reference/man_page.ts";
import { zshCompletion } from "../lib/tools/cli/reference/zsh_completion.ts";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import { isMissing } from "./support/requirement.ts";

const TABLE = completionTable(COMMANDS);
const VERBS = TABLE.verbs.map(({ name }) => name);

async function has(program: string): Promise<boolean> {
  const command = new Deno.Command("sh", { args: ["-c", `command -v ${program}`] });
  return (await command.output()).success;
}

interface Scene {
  readonly folder: string;
  /** Runs a shell or another program there, with a kube-relay on PATH that knows two Services. */
  readonly run: (program: string, args: readonly string[]) => Promise<readonly string[]>;
}

/** Gives a script a folder of its own, with `one.yaml` and `sub/` in it. */
async function withScene(test: (scene: Scene) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${folder}/work/sub`, { recursive: true });
    await Deno.writeTextFile(`${folder}/work/one.yaml`, "");
    await Deno.mkdir(`${folder}/bin`);
    const services = "printf '%s\\n' default/web default/shop | grep \"^$3\"";
    await Deno.writeTextFile(`${folder}/bin/kube-relay`, `#!/bin/sh\n${services}\n`, {
      mode: 0o755,
    });
    await test({
      folder,
      async run(program, args) {
        const { success, stdout, stderr } = await new Deno.Command(program, {
          args: [...args],
          cwd: `${folder}/work`,
          env: { PATH: `${folder}/bin:${Deno.env.get("PATH")}`, HOME: folder, TERM: "dumb" },
        }).output();
        const words = new TextDecoder().decode(stderr);
        assert(success && words === "", words);
        return new TextDecoder().decode(stdout).split("\n").filter((line) => line !== "");
      },
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/**
 * The words of a command line, the last one incomplete, and the completions. Bash splits words at
 * `=`.
 */
const BASH_CASES: readonly (readonly [words: readonly string[], offered: readonly string[]])[] = [
  [[""], VERBS],
  [["sta"], ["status"]],
  [["--mode", "ipt"], ["iptables"]],
  [["--mode", "=", "user"], ["userspace"]],
  [["--mode", "="], [...BACKEND_MODES, "auto"]],
  [["status", "--watc"], ["--watch"]],
  [["--control-socket", "x", "status", "--fil"], ["--filter"]],
  [["--control-socket", "=", "x", "stat"], ["status"]],
  [["render", "--watc"], []],
  [["render", "--family", ""], ["ipv4", "ipv6"]],
  [["render", "--manifests", "s"], ["sub"]],
  [["render", "--from", "o"], ["one.yaml"]],
  [["render", "--service", "default/w"], ["default/web"]],
  [["dump", "o"], ["one.yaml"]],
  [["explain", "default/"], ["default/web", "default/shop"]],
  [["explain", "node", "default/s"], ["default/shop"]],
  [["completions", ""], ["bash", "zsh", "fish"]],
  [["help", "sta"], ["status"]],
  [["status", "x"], []],
];

Deno.test({
  name: "bash completes verbs, flags, values, files and Services",
  ignore: isMissing("completion in bash", [["bash", await has("bash")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/script`, bashCompletion(TABLE));
      for (const [words, offered] of BASH_CASES) {
        const line = `source ${folder}/script; COMP_WORDS=(kube-relay "$@"); COMP_CWORD=$#; ` +
          `_kube_relay; printf '%s\\n' "\${COMPREPLY[@]}"`;
        assertEquals(await run("bash", ["-c", line, "bash", ...words]), offered, words.join(" "));
      }
    }),
});

Deno.test({
  name: "the completion for bash has no fault that shellcheck knows",
  ignore: isMissing("shellcheck", [["shellcheck", await has("shellcheck")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/script`, bashCompletion(TABLE));
      assertEquals(await run("shellcheck", ["-s", "bash", `${folder}/script`]), []);
    }),
});

const FISH_CASES: readonly (readonly [line: string, offered: readonly string[]])[] = [
  ["sta", ["status"]],
  ["--mode ipt", ["iptables"]],
  ["--mode=user", ["--mode=userspace"]],
  ["status --watc", ["--watch"]],
  ["render --watc", []],
  ["render --service default/w", ["default/web"]],
  ["render --manifests s", ["sub/"]],
  ["dump o", ["one.yaml"]],
  ["explain default/w", ["default/web"]],
  ["completions z", ["zsh"]],
];

Deno.test({
  name: "fish completes verbs, flags, values, files and Services",
  ignore: isMissing("completion in fish", [["fish", await has("fish")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/script`, fishCompletion(TABLE));
      assertEquals(await run("fish", ["-n", `${folder}/script`]), []);
      for (const [line, offered] of FISH_CASES) {
        const command = `source ${folder}/script; complete -C 'kube-relay ${line}'`;
        const lines = await run("fish", ["-Nc", command]);
        assertEquals(lines.map((each) => each.split("\t")[0]!), [...offered], line);
      }
    }),
});

/** Types a line and Tab into a zsh on its own terminal, and waits for the completion. */
const ZSH_TYPIST = String.raw`
zmodload zsh/zpty
zpty typist zsh -f -i
zpty -w typist "PS1='pro''mpt> '; autoload -U compinit; compinit -D; source $1; print rea''dy"
seen=""
await() {
  local piece
  repeat 300; do
    while zpty -rt typist piece; do seen+=$piece; done
    if [[ $seen == *$1* ]]; then return; fi
    sleep 0.1
  done
  print -r -- "never saw '$1' in '$seen'"
  exit 1
}
await "ready"
await "prompt> "
seen=""
zpty -wn typist $2$'\t'
await $3
print completed
`;

const ZSH_CASES: readonly (readonly [line: string, completed: string])[] = [
  ["kube-relay sta", "kube-relay status "],
  ["kube-relay status --wat", "kube-relay status --watch"],
  ["kube-relay --mode=ipt", "kube-relay --mode=iptables"],
  ["kube-relay --mode user", "kube-relay --mode userspace"],
  ["kube-relay dump o", "kube-relay dump one.yaml"],
  ["kube-relay explain default/w", "kube-relay explain default/web"],
  ["kube-relay completions z", "kube-relay completions zsh"],
];

Deno.test({
  name: "zsh completes verbs, flags, values, files and Services",
  ignore: isMissing("completion in zsh", [["zsh", await has("zsh")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/_kube-relay`, zshCompletion(TABLE));
      await Deno.writeTextFile(`${folder}/script`, ZSH_TYPIST);
      assertEquals(await run("zsh", ["-fn", `${folder}/_kube-relay`]), []);
      const lines = await run("zsh", [
        "-fc",
        `autoload -U compinit; compinit -D; source ${folder}/_kube-relay; print $_comps[kube-relay]`,
      ]);
      assertEquals(lines, ["_kube_relay"]);
      for (const [line, completed] of ZSH_CASES) {
        const words = [`${folder}/script`, `${folder}/_kube-relay`, line, completed];
        assertEquals(await run("zsh", ["-f", ...words]), ["completed"], line);
      }
    }),
});

Deno.test({
  name: "the manual page has no warnings, and describes every verb and flag",
  ignore: isMissing("the manual page", [["groff", await has("groff")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      const page = createManCommand(() => COMMANDS).text({}, []);
      await Deno.writeTextFile(`${folder}/kube-relay.8`, page);
      const flags = ["-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u"];
      const lines = await run("groff", [...flags, `${folder}/kube-relay.8`]);
      const text = lines.join("\n");
      for (const line of lines) assert(line.length <= 80, line);
      for (const verb of VERBS) assert(text.includes(`\n       ${verb}`), verb);
      for (const { names: [name = ""] } of TABLE.flags) assert(text.includes(`${name}`), name);
    }),
});

Deno.test("completions offer no hidden verb", () => {
  assert(COMMANDS.some(({ hidden }) => hidden));
  for (const { name, hidden } of COMMANDS) assertEquals(VERBS.includes(name), !hidden, name);
});
