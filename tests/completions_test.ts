/** Completion and manual page as the shells and groff themselves read them. */
import { assert, assertEquals } from "@std/assert";
import { VERBS as ALL } from "../lib/tools/cli/verbs.ts";
import type { Flag } from "../lib/config/flag.ts";
import { FLAG_ROWS } from "../lib/config/flags.ts";
import { startControlServer } from "../lib/tools/control/control_server.ts";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { isMissing } from "./support/requirement.ts";

const VERBS = ALL.filter(({ hidden }) => !hidden).map(({ name }) => name);

async function printed(...argv: readonly string[]): Promise<string> {
  const { code, out, err } = await runInProcess(argv);
  assertEquals([code, err], [0, ""], argv.join(" "));
  return out;
}

async function has(program: string): Promise<boolean> {
  const command = new Deno.Command("sh", { args: ["-c", `command -v ${program}`] });
  return (await command.output()).success;
}

interface Scene {
  readonly folder: string;
  /** Runs a shell or another program there, with a kube-relay on PATH that knows two Services. */
  readonly run: (program: string, args: readonly string[]) => Promise<readonly string[]>;
}

/** What the kube-relay of a scene answers for the last two words, the second one with its dot. */
const ANSWERS = `case "$*" in
  complete*"-- .sta") printf 'status\\task: it\\n' ;;
  complete*"status .--wa") printf -- '--watch\\tshow it\\n--wait\\tlongest time\\n' ;;
  complete*"-- .--mode=us") printf -- '--mode=userspace\\n' ;;
  complete*"--mode = .us") printf 'userspace\\n' ;;
  complete*"--from .o" | complete*"dump .o") echo :file ;;
  complete*"--manifests .s") echo :folder ;;
  *) ;;
esac
`;

/** Gives a script a folder of its own, with `one.yaml` and `sub/` in it. */
async function withScene(test: (scene: Scene) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${folder}/work/sub`, { recursive: true });
    await Deno.writeTextFile(`${folder}/work/one.yaml`, "");
    await Deno.mkdir(`${folder}/bin`);
    await Deno.writeTextFile(`${folder}/bin/kube-relay`, `#!/bin/sh\n${ANSWERS}`, { mode: 0o755 });
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

/** The words of a command line, the last one incomplete, and the completions. */
const CASES: readonly (readonly [words: readonly string[], offered: readonly string[]])[] = [
  [[""], VERBS],
  [["sta"], ["status"]],
  [["--mode", "ipt"], ["iptables"]],
  [["--mode", "=", "user"], ["userspace"]],
  [["--mode", "="], [...BACKEND_MODES, "auto"]],
  [["--mode=user"], ["--mode=userspace"]],
  [["status", "--watc"], ["--watch"]],
  [["--control-socket", "x", "status", "--fil"], ["--filter"]],
  [["--control-socket", "=", "x", "stat"], ["status"]],
  [["--control-socket=x", "stat"], ["status"]],
  [["render", "--watc"], []],
  [["render", "--family", ""], ["ipv4", "ipv6"]],
  [["render", "--manifests", "s"], [":file"]],
  [["render", "--from", "o"], [":file"]],
  [["render", "--service", "default/w"], ["default/web"]],
  [["dump", "o"], [":file"]],
  [["explain", "default/"], ["default/web", "default/shop"]],
  [["explain", "node", "default/s"], ["default/shop"]],
  [["completion", ""], ["bash", "zsh", "fish"]],
  [["help", "sta"], ["status"]],
  [["status", "x"], []],
  [["-v", "sta"], []],
];

Deno.test("complete offers verbs, flags, values, files and Services, and is silent about errors", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const socket = `--control-socket=${folder}/control.sock`;
    const offered = async (words: readonly string[]) => {
      const last = words.length - 1;
      const argv = words.map((word, index) => index === last ? `.${word}` : word);
      const out = await printed("complete", socket, "--", ...argv);
      return out.split("\n").flatMap((line) => line === "" ? [] : line.split("\t").slice(0, 1));
    };
    assertEquals(await offered(["explain", "default/"]), []);
    const server = await startControlServer({
      path: `${folder}/control.sock`,
      routes: {
        "/services": ({ prefix = "" }) =>
          Promise.resolve(
            ["default/web", "default/shop", "default/a b", "default/$(id)"]
              .filter((name) => name.startsWith(prefix)),
          ),
      },
    });
    for (const [words, expected] of CASES) {
      assertEquals(await offered(words), expected, words.join(" "));
    }
    const named = `${folder}/control.sock`;
    for (
      const flag of [["--control-socket", named], ["--control-socket", "=", named], [
        `--control-socket=${named}`,
      ]]
    ) {
      const out = await printed("complete", "--", "explain", ...flag, "node", ".default/w");
      assertEquals(out, "default/web\n", flag.join(" "));
    }
    await server.stop();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

/** Bash splits words at `=`. */
const BASH_CASES: readonly (readonly [words: readonly string[], offered: readonly string[]])[] = [
  [["sta"], ["status"]],
  [["status", "--wa"], ["--watch", "--wait"]],
  [["--mode", "=", "us"], ["userspace"]],
  [["render", "--from", "o"], ["one.yaml"]],
  [["render", "--manifests", "s"], ["sub"]],
  [["status", "x"], []],
];

Deno.test({
  name: "bash completes words, files and folders",
  ignore: isMissing("completion in bash", [["bash", await has("bash")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/script`, await printed("completion", "bash"));
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
      await Deno.writeTextFile(`${folder}/script`, await printed("completion", "bash"));
      assertEquals(await run("shellcheck", ["-s", "bash", `${folder}/script`]), []);
    }),
});

const FISH_CASES: readonly (readonly [line: string, offered: readonly string[]])[] = [
  ["sta", ["status"]],
  ["status --wa", ["--wait", "--watch"]],
  ["--mode=us", ["--mode=userspace"]],
  ["render --manifests s", ["sub/"]],
  ["dump o", ["one.yaml"]],
];

Deno.test({
  name: "fish completes words, files and folders",
  ignore: isMissing("completion in fish", [["fish", await has("fish")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/script`, await printed("completion", "fish"));
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
  ["kube-relay --mode=us", "kube-relay --mode=userspace"],
  ["kube-relay dump o", "kube-relay dump one.yaml"],
];

Deno.test({
  name: "zsh completes words and files",
  ignore: isMissing("completion in zsh", [["zsh", await has("zsh")]]),
  fn: () =>
    withScene(async ({ folder, run }) => {
      await Deno.writeTextFile(`${folder}/_kube-relay`, await printed("completion", "zsh"));
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
      await Deno.writeTextFile(`${folder}/kube-relay.8`, await printed("man"));
      const flags = ["-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u"];
      const lines = await run("groff", [...flags, `${folder}/kube-relay.8`]);
      const text = lines.join("\n");
      for (const line of lines) assert(line.length <= 80, line);
      for (const verb of VERBS) assert(text.includes(`\n       ${verb}`), verb);
      for (const flag of FLAG_ROWS as readonly Flag[]) {
        assert(flag.retired || text.includes(`--${flag.name}`), flag.name);
      }
    }),
});
