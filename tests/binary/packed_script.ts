/**
 * The self-extracting form with a small script in place of Deno. Its actions before the program
 * starts can thus be tried in milliseconds, as root and as another user, in a mount namespace whose
 * /run, /tmp and /var/cache are empty.
 */
import { assertEquals } from "@std/assert";
import { fileURLToPath } from "node:url";
import { program, type Requirement, ROOT } from "../support/requirement.ts";

/** The requirements of the scenarios. */
export const SCENARIO_REQUIREMENTS: readonly Requirement[] = [
  ROOT,
  program("unshare"),
  program("setpriv"),
  program("busybox"),
];

/** In place of Deno: prints the folder to which it was unpacked, and its arguments. */
const STAND_IN = `#!/bin/sh
# First, because a shell collects every child when it waits for one.
read -r children <"/proc/$$/task/$$/children"
while [ "\${1%.js}" = "$1" ]; do shift; done
touch "$DENO_DIR/ran-\${1##*/}" 2>/dev/null
[ "\${1##*/}" = main.js ] || exit 0
echo "kube-relay v9.8.7 from \${1%/*}"
shift
case \${1-} in
show) shift && for argument; do echo "argument [$argument]"; done ;;
children) echo "children [$children]" ;;
environment) env && echo "umask $(umask)" && echo "pid $$" ;;
exit) exit "$2" ;;
esac
`;

/** The commands at the beginning of each scenario. */
const PRELUDE = `
set -u
mount -t tmpfs -o mode=0755 tmpfs /var/cache
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/fixture && mount --bind "$FIXTURE" /run/fixture
mount -t tmpfs -o mode=1777 tmpfs /tmp
PROGRAM=/run/fixture/program
# A home directory of the plain user's.
H=/run/home && install -d -o 65534 -g 65534 -m 0700 $H
# root NAME=VALUE… and plain NAME=VALUE… run it with this environment and, if set, $ARGUMENTS.
ARGUMENTS=
root() { env -i PATH=/usr/bin:/bin "$@" $SHELL_OF_TEST "$PROGRAM" $ARGUMENTS; }
plain() { setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all \\
    env -i PATH=/usr/bin:/bin "$@" $SHELL_OF_TEST "$PROGRAM" $ARGUMENTS; }
# plant DIRECTORY: fills it with files that must never run.
plant() { mkdir -p "$1/v8" && chmod 0700 "$1" "$1/v8" && printf '#!/bin/sh\\necho PLANTED\\n' >"$1/kube-relay" &&
    chmod 0700 "$1/kube-relay" && : >"$1/main.js" && chmod 0600 "$1/main.js"; }
`;

/** Removes what a start says after two seconds, which a busy machine may need for any of them. */
export function withoutNotice(stderr: string): string {
  return stderr.replaceAll(/^kube-relay: unpacking and comparing .*\n/gm, "");
}

/** The output of a scenario. */
export interface ScenarioResult {
  readonly stdout: string;
  readonly stderr: string;
}

/** A packed script in a directory of its own. */
export class PackedScript implements AsyncDisposable {
  readonly #directory: string;
  /** The directory's name below the place that it takes. */
  readonly id: string;

  private constructor(directory: string, id: string) {
    this.#directory = directory;
    this.id = id;
  }

  /** Packs the stand-in as compile.sh packs Deno. */
  static async create(): Promise<PackedScript> {
    const directory = await Deno.makeTempDir({ prefix: "packed-" });
    await Deno.writeTextFile(`${directory}/deno`, STAND_IN);
    await Deno.mkdir(`${directory}/bundle`);
    await Deno.writeTextFile(`${directory}/bundle/main.js`, "// the program\n");
    await Deno.writeTextFile(`${directory}/bundle/chunk.js`, "// a part of it\n");
    await Deno.writeTextFile(`${directory}/bundle/everything.js`, "// loads both\n");
    const pack = fileURLToPath(new URL("../../deploy/pack.sh", import.meta.url));
    const args = ["9.8.7", "x86_64", `${directory}/deno`, `${directory}/bundle`, "--no-prompt"];
    const { stdout } = await new Deno.Command(pack, { args, stderr: "inherit" }).output();
    return await PackedScript.#of(directory, stdout);
  }

  /** The built executable itself. Undefined where it is not of the self-extracting form. */
  static async ofBuilt(path: string): Promise<PackedScript | undefined> {
    const content = await Deno.readFile(path);
    if (new TextDecoder().decode(content.subarray(0, 2)) !== "#!") return undefined;
    return await PackedScript.#of(await Deno.makeTempDir({ prefix: "packed-" }), content);
  }

  static async #of(directory: string, content: Uint8Array): Promise<PackedScript> {
    await Deno.writeFile(`${directory}/program`, content, { mode: 0o755 });
    await Deno.chmod(directory, 0o755);
    const head = new TextDecoder().decode(content.subarray(0, 4096));
    return new PackedScript(directory, /^readonly id='(.*)'$/m.exec(head)?.[1] ?? "");
  }

  /**
   * Runs a shell script on a machine of its own. It finds the functions `root`, `plain` and `plant`,
   * and `$PROGRAM`, `$ID` and `$H`, the plain user's home. Throws when the script itself fails.
   */
  async play(
    script: string,
    { shell = "", keepsNotice = false } = {},
  ): Promise<ScenarioResult> {
    const { code, stdout, stderr } = await new Deno.Command("unshare", {
      args: ["--mount", "--propagation=private", "sh", "-c", `${PRELUDE}\n${script}`],
      env: { FIXTURE: this.#directory, ID: this.id, SHELL_OF_TEST: shell, LC_ALL: "C" },
      stdin: "null",
    }).output();
    const decoder = new TextDecoder();
    const complaints = decoder.decode(stderr);
    const result = {
      stdout: decoder.decode(stdout),
      stderr: keepsNotice ? complaints : withoutNotice(complaints),
    };
    assertEquals(code, 0, `the scenario failed:\n${script}\n${result.stdout}\n${result.stderr}`);
    return result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#directory, { recursive: true });
  }
}
