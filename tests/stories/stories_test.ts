/**
 * Runs each story of docs/stories.md: the script prints the output on the page and leaves nothing
 * behind.
 */
import { assert, assertEquals } from "@std/assert";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { readPage } from "../support/docs/command_pages.ts";
import { eventually } from "../support/eventually.ts";
import { extractBlocks } from "../support/docs/markdown_blocks.ts";
import { program, ROOT, testNeeding } from "../support/requirement.ts";

const REPOSITORY = new URL("../../", import.meta.url).pathname;
const FOLDER = `${REPOSITORY}examples/stories`;

/** The time limit of a story on a busy machine. */
const LIMIT_MS = 100_000;

const test = testNeeding("the stories of docs/stories.md", [
  ROOT,
  ...["bash", "conntrack", "ip", "iptables-save", "nft", "setpriv", "socat", "unshare"]
    .map(program),
]);

/** The part of a story that the page shows: the script, and lines of its output in order. */
interface ToldStory {
  readonly script: string;
  readonly lines: readonly string[];
}

/**
 * A story is a block with the script, followed by one with output. `…` stands for omitted lines.
 */
async function toldStories(): Promise<readonly ToldStory[]> {
  const blocks = extractBlocks(await readPage("docs/stories.md"));
  return blocks.flatMap(({ text }, index) => {
    const [, script] = /^sudo examples\/stories\/(\w+\.sh)\n$/.exec(text) ?? [];
    if (script === undefined) return [];
    const output = blocks[index + 1]?.text ?? "";
    return [{
      script,
      lines: output.split("\n").map(steady).filter((line) => !LEFT_OUT.test(line)),
    }];
  });
}

const LEFT_OUT = /^\s*…?$/;

/** A line without its variable parts: times of day, durations, process ids, timeouts. */
function steady(line: string): string {
  return line.trimEnd()
    .replace(/^\d\d:\d\d:\d\d( +\S+ +)[\d.]+ m?s/, "hh:mm:ss$1n ms")
    .replace(/^(udp +17) \d+/, "$1 n")
    .replace(/up \d+s {2}\(process \d+\)/, "up ns  (process n)")
    .replaceAll(/ +/g, " ");
}

/** kube-relay from source, as one file: the scripts want an executable. */
async function writeExecutable(folder: string): Promise<string> {
  const words = [
    "exec",
    Deno.execPath(),
    "run",
    ...permissionFlags(),
    "--unstable-net",
    "--quiet",
    "--no-check",
    `${REPOSITORY}main.ts`,
  ];
  const line = words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
  const path = `${folder}/kube-relay`;
  await Deno.writeTextFile(path, `#!/bin/sh\n${line.replace("'exec'", "exec")} "$@"\n`);
  await Deno.chmod(path, 0o755);
  return path;
}

/** A story on its way. Its processes are known by a mark in their environment. */
class Telling implements AsyncDisposable {
  readonly #mark = `KUBE_RELAY_STORY=${crypto.randomUUID()}`;
  readonly #folder: string;
  readonly process: Deno.ChildProcess;

  private constructor(folder: string, executable: string, script: string) {
    this.#folder = folder;
    const [name = "", value = ""] = this.#mark.split("=");
    this.process = new Deno.Command(`${FOLDER}/${script}`, {
      env: { KUBE_RELAY: executable, NO_COLOR: "1", [name]: value },
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
    }).spawn();
  }

  static async start(script: string): Promise<Telling> {
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-story-" });
    const executable = Deno.env.get("KUBE_RELAY") ?? await writeExecutable(folder);
    return new Telling(folder, executable, script);
  }

  /** Waits until all of its processes have ended; everything that it made ends with them. */
  async gone(): Promise<void> {
    const find = ["-c", `grep -lF -- "$1" /proc/[0-9]*/environ 2>/dev/null`, "sh", this.#mark];
    await eventually("no process of the story is left", async () => {
      const { stdout } = await new Deno.Command("sh", { args: find }).output();
      return stdout.length === 0;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#folder, { recursive: true });
  }
}

async function tell(script: string): Promise<string> {
  await using telling = await Telling.start(script);
  const stuck = setTimeout(() => telling.process.kill("SIGKILL"), LIMIT_MS);
  const { code, stdout, stderr } = await telling.process.output();
  clearTimeout(stuck);
  const [out, err] = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes));
  assertEquals(code, 0, `${script} ended with ${code}\n${out}\n${err}`);
  await telling.gone();
  return out!;
}

Deno.test("docs/stories.md has five stories, and each script is one of them", async () => {
  const shown = (await toldStories()).map(({ script }) => script).toSorted();
  const scripts: string[] = [];
  for await (const { name } of Deno.readDir(FOLDER)) {
    if (name.endsWith(".sh") && name !== "stage.sh") scripts.push(name);
  }
  assertEquals(shown, scripts.toSorted());
  assertEquals(shown.length, 5);
});

for (const { script, lines } of await toldStories()) {
  test(`${script} prints the output in docs/stories.md, and leaves nothing behind`, async () => {
    assert(lines.length >= 5, `docs/stories.md shows next to nothing of ${script}`);
    const output = await tell(script);
    const found = output.split("\n").map(steady);
    let from = 0;
    for (const line of lines) {
      const at = found.indexOf(line, from);
      assert(
        at >= 0,
        `docs/stories.md has this line and the output does not (here):\n${line}\n\n${output}`,
      );
      from = at + 1;
    }
  });
}

test("a story that is killed in the middle leaves nothing behind", async () => {
  await using telling = await Telling.start("altered_rule.sh");
  const output = telling.process.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let shown = "";
  // By then its pods, its rules and its kube-relay exist.
  while (!shown.includes("answers a client")) {
    const { done, value = "" } = await output.read();
    assert(!done, `the story ended too early: ${shown}`);
    shown += value;
  }
  telling.process.kill("SIGKILL");
  await telling.process.status;
  await telling.gone();
  // It ended, rather than went on to its end.
  for (let rest = await output.read(); !rest.done; rest = await output.read()) {
    shown += rest.value;
  }
  assert(!shown.includes("repaired"), shown);
  await telling.process.stderr.cancel();
});
