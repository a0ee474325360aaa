/**
 * The built executable as a user runs it: in its own directory, as root or as a plain user, with no
 * Deno on the PATH and only the given environment.
 */
import { fileURLToPath } from "node:url";
import { LineProcess } from "../support/drivers/line_process.ts";
import { file, program, type Requirement, ROOT } from "../support/requirement.ts";
import { withoutNotice } from "./packed_script.ts";
import { unusedPort } from "../support/drivers/unused_port.ts";

/** The executable that `./compile.sh` builds. */
export const BUILT = fileURLToPath(new URL("../../dist/kube-relay", import.meta.url));

/** The requirements of these tests. */
export const EXECUTABLE_REQUIREMENTS: readonly Requirement[] = [
  file(BUILT, "./compile.sh"),
  ROOT,
  program("setpriv"),
];

/** The users that run it. */
export const USERS = ["root", "a plain user"] as const;
export type User = typeof USERS[number];

/** `nobody`: owns nothing and has no rights. */
const PLAIN_USER = 65534;

/** The result of a run. */
export interface Output {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A copy of the executable with directories for one user. */
export class Executable implements AsyncDisposable {
  /** A directory of the user's. */
  readonly directory: string;
  readonly #user: User;

  private constructor(directory: string, user: User) {
    this.directory = directory;
    this.#user = user;
  }

  static async create(user: User): Promise<Executable> {
    const directory = await Deno.makeTempDir({ prefix: "executable-" });
    await Deno.copyFile(BUILT, `${directory}/kube-relay`);
    await Deno.chmod(directory, 0o755);
    const executable = new Executable(directory, user);
    for (const name of ["home", "run", "cache", "manifests"]) await executable.makeDirectory(name);
    return executable;
  }

  /** Makes a directory that only the user can enter, and returns its path. */
  async makeDirectory(name: string): Promise<string> {
    const path = `${this.directory}/${name}`;
    await Deno.mkdir(path, { mode: 0o700 });
    await this.give(path);
    return path;
  }

  /** Gives a file to the user. */
  async give(path: string): Promise<void> {
    if (this.#user === "a plain user") await Deno.chown(path, PLAIN_USER, PLAIN_USER);
  }

  get path(): string {
    return `${this.directory}/kube-relay`;
  }

  /** Puts a manifest where the user can read it, at once and whole. */
  async writeManifest(name: string, objects: readonly unknown[]): Promise<void> {
    const path = `${this.directory}/manifests/${name}`;
    const text = objects.map((object) => JSON.stringify(object)).join("\n---\n");
    await Deno.writeTextFile(`${path}.new`, text);
    await this.give(`${path}.new`);
    await Deno.rename(`${path}.new`, path);
  }

  /** Runs it to its end. */
  async run(args: readonly string[], environment: readonly string[] = []): Promise<Output> {
    const command = this.command(args, environment);
    // A run that hangs ends as a failed one.
    const output = await new Deno.Command("timeout", { args: ["120", ...command], stdin: "null" })
      .output();
    const decoder = new TextDecoder();
    return {
      code: output.code,
      stdout: decoder.decode(output.stdout),
      stderr: withoutNotice(decoder.decode(output.stderr)),
    };
  }

  /** Starts it on the manifests, with health and metrics on ports that no other process has. */
  start(args: readonly string[] = [], environment: readonly string[] = []): LineProcess {
    const [command, ...rest] = this.command([
      "--mode=userspace",
      `--manifests=${this.directory}/manifests`,
      `--healthz-bind-address=127.0.0.1:${unusedPort()}`,
      `--metrics-bind-address=127.0.0.1:${unusedPort()}`,
      ...args,
    ], environment);
    return new LineProcess(command!, rest);
  }

  /**
   * The command line by which the user runs it. Each program executes the next one, so the process
   * id is that of the executable.
   */
  command(args: readonly string[], environment: readonly string[] = []): string[] {
    const own = this.#user === "root"
      // Root's places are the machine's: these take their place.
      ? [`CACHE_DIRECTORY=${this.directory}/cache`, `RUNTIME_DIRECTORY=${this.directory}/run`]
      : [`HOME=${this.directory}/home`, `XDG_RUNTIME_DIR=${this.directory}/run`];
    const identity = `--reuid=${PLAIN_USER} --regid=${PLAIN_USER} --clear-groups --inh-caps=-all`;
    return [
      ...(this.#user === "root" ? [] : ["setpriv", ...identity.split(" ")]),
      ...["env", "-i", "PATH=/usr/bin:/bin", ...own, ...environment],
      ...[this.path, ...args],
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.directory, { recursive: true });
  }
}
