/** Tests the order and the files of `deno task release`, with small programs in place of its costly steps. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";

const HERE = new URL("./", import.meta.url);
const MACHINES = ["x86_64", "aarch64"];
/** Programs that release.sh starts before the first step, besides those that it needs. */
const BASIC = ["bash", "dirname", "sed", "head", "grep", "git", "uname", "mkdir", "cat"];
const NATIVE = new TextDecoder().decode(
  (await new Deno.Command("uname", { args: ["-m"] }).output()).stdout,
).trim();

const CHART = "deploy/chart/kube-relay/Chart.yaml";
const MANIFEST = "deploy/kubernetes/kubeadm.yaml";

/** In place of ./compile.sh: it writes the same files. */
const COMPILE = `#!/bin/bash
machine=\${2%-unknown-linux-gnu} dist=$4
output=$dist/kube-relay-$machine
if [[ $machine == "$(uname -m)" ]]; then output=$dist/kube-relay; fi
mkdir -p "$dist/completion"
printf '#!/bin/sh\\necho "kube-relay v1.2.3 (compiled)"\\n' >"$dist/new" && chmod +x "$dist/new"
mv "$dist/new" "$output"
touch "$dist"/{THIRD-PARTY-LICENSES,kube-relay.8,kube-relay.spdx.json} "$dist"/completion/kube-relay.{bash,zsh,fish}
echo sums >"$dist/SHA256SUMS"
`;

const STEPS = {
  "tarballs.sh":
    'ls "$1" >seen; for m in $MACHINES; do touch "$1/kube-relay_${VERSION}_linux_$m.tar.gz"; done',
  "deb.sh": 'touch "$1"/kube-relay_"$VERSION"_{amd64,arm64}.deb',
  "rpm.sh": 'for m in $MACHINES; do touch "$1/kube-relay_${VERSION}_$m.rpm"; done',
  "image.sh":
    'if [[ $1 == --check ]]; then exit; fi; echo "$IMAGE_MACHINES" >images; touch "$1/kube-relay_${VERSION}_amd64.oci.tar"',
  "chart.sh": 'touch "$1/kube-relay-$VERSION.tgz"',
};

const FILES = [
  "THIRD-PARTY-LICENSES",
  ...["bash", "fish", "zsh"].map((shell) => `completion/kube-relay.${shell}`),
  "kube-relay",
  "kube-relay-1.2.3.tgz",
  "kube-relay-aarch64",
  "kube-relay-x86_64",
  "kube-relay.8",
  "kube-relay.spdx.json",
  "kube-relay_1.2.3_aarch64.rpm",
  ...["amd64.deb", "amd64.oci.tar", "arm64.deb"].map((end) => `kube-relay_1.2.3_${end}`),
  ...MACHINES.toSorted().map((machine) => `kube-relay_1.2.3_linux_${machine}.tar.gz`),
  "kube-relay_1.2.3_x86_64.rpm",
];

async function writeProgram(path: string, text: string): Promise<void> {
  await Deno.writeTextFile(path, text, { mode: 0o755 });
}

/** A folder with what release.sh reads. `run` returns the status and the output. */
async function withRelease(
  test: (
    folder: string,
    run: (args?: readonly string[], env?: Record<string, string>) => Promise<[number, string]>,
  ) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/deploy/release`, { recursive: true });
    for (const name of ["bin", "deploy/kubernetes", "deploy/chart/kube-relay"]) {
      await Deno.mkdir(`${folder}/${name}`, { recursive: true });
    }
    await Deno.mkdir(`${folder}/dist`);
    await Deno.writeTextFile(`${folder}/deno.json`, '{\n  "version": "1.2.3",\n}\n');
    await Deno.writeTextFile(`${folder}/CHANGELOG.md`, "## [1.2.3] - 2026-01-02\n");
    await Deno.writeTextFile(`${folder}/${CHART}`, "version: 1.2.3\nappVersion: 1.2.3\n");
    await Deno.writeTextFile(
      `${folder}/${MANIFEST}`,
      "  image: registry.example/kube-relay:1.2.3\n",
    );
    for (const name of ["release.sh", "executables.sh"]) {
      await Deno.copyFile(new URL(name, HERE), `${folder}/deploy/release/${name}`);
    }
    for (const [name, text] of Object.entries(STEPS)) {
      await writeProgram(`${folder}/deploy/release/${name}`, `#!/bin/bash\n${text}\n`);
    }
    await writeProgram(`${folder}/compile.sh`, COMPILE);
    for (const name of ["npm", "dpkg-deb", "rpmbuild"]) {
      await writeProgram(`${folder}/bin/${name}`, "#!/bin/sh\nexit 1\n");
    }
    await test(folder, async (args = [], env = {}) => {
      const { code, stdout, stderr } = await new Deno.Command(
        `${folder}/deploy/release/release.sh`,
        {
          args: [...args],
          clearEnv: true,
          env: { PATH: `${folder}/bin:${Deno.env.get("PATH")}`, SOURCE_DATE_EPOCH: "1", ...env },
        },
      ).output();
      return [code, [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes)).join("")];
    });
  });
}

async function assertSuccess(run: Promise<[number, string]>): Promise<string> {
  const [code, output] = await run;
  assertEquals(code, 0, output);
  return output;
}

/** The names in SHA256SUMS. */
async function summed(folder: string): Promise<string[]> {
  const sums = await Deno.readTextFile(`${folder}/dist/SHA256SUMS`);
  return sums.trimEnd().split("\n").map((line) => line.replace(/^\S+ [ *]/, ""));
}

Deno.test("a release makes an image for this machine only, unless IMAGE_MACHINES says otherwise", () =>
  withRelease(async (folder, run) => {
    await assertSuccess(run());
    assertEquals(await Deno.readTextFile(`${folder}/images`), `${NATIVE}\n`);
    assertEquals(await summed(folder), FILES);
    await assertSuccess(run([], { IMAGE_MACHINES: "x86_64 aarch64" }));
    assertEquals(await Deno.readTextFile(`${folder}/images`), "x86_64 aarch64\n");
  }));

Deno.test("a tool or key that a later step lacks is reported before the first step", () =>
  withRelease(async (folder, run) => {
    await writeProgram(`${folder}/deploy/release/image.sh`, "#!/bin/sh\necho no root; exit 1\n");
    const [code, output] = await run();
    assertEquals(code, 1);
    assertStringIncludes(output, "no root\nrelease: cannot make the image");
    const env = { RELEASE_SIGNING_KEY: `${folder}/key` };
    const unread = await run(["--skip", "image.sh"], env);
    assertEquals(unread, [1, `release: cannot read RELEASE_SIGNING_KEY, '${folder}/key'\n`]);

    const PATH = `${folder}/few`;
    await Deno.mkdir(PATH);
    for (const name of [...BASIC, "npm", "dpkg-deb"]) {
      const { stdout } = await new Deno.Command("sh", { args: ["-c", `command -v ${name}`] })
        .output();
      const found = new TextDecoder().decode(stdout).trim();
      await Deno.symlink(found || `${folder}/bin/${name}`, `${PATH}/${name}`);
    }
    assertEquals(await run([], { PATH }), [
      1,
      "release: needs the Debian package rpm, or --skip rpm.sh\n",
    ]);
    assertEquals(await namesIn(`${folder}/dist`), []);
  }));

Deno.test("--reuse takes the executable that ./compile.sh made last, if it has the version", () =>
  withRelease(async (folder, run) => {
    const native = `${folder}/dist/kube-relay-${NATIVE}`;
    await writeProgram(native, '#!/bin/sh\necho "kube-relay v1.2.3 (old)"\n');
    await writeProgram(`${folder}/dist/kube-relay`, '#!/bin/sh\necho "kube-relay v1.2.3 (new)"\n');
    await assertSuccess(run(["--reuse"]));
    assertStringIncludes(await Deno.readTextFile(native), "(new)");

    await writeProgram(`${folder}/dist/kube-relay`, '#!/bin/sh\necho "kube-relay v1.2.2 (new)"\n');
    const [code, output] = await run(["--reuse"]);
    assertEquals(code, 1);
    assertStringIncludes(output, "is 'kube-relay v1.2.2 (new)', but the release is v1.2.3");
  }));

Deno.test("SHA256SUMS is there only when the release is complete", () =>
  withRelease(async (folder, run) => {
    await assertSuccess(run());
    assertEquals((await Deno.readTextFile(`${folder}/seen`)).includes("SHA256SUMS"), false);
    // It signs nothing.
    await writeProgram(`${folder}/bin/ssh-keygen`, '#!/bin/sh\necho "no agent"; exit 1\n');
    await Deno.writeTextFile(`${folder}/key`, "");
    const [code, output] = await run([], { RELEASE_SIGNING_KEY: "key" });
    assertEquals(code, 1);
    assertStringIncludes(output, "no agent\n");
    const names = await namesIn(`${folder}/dist`);
    assertEquals(names.filter((name) => /^SHA256SUMS(\.sig)?$/.test(name)), []);
  }));

Deno.test("files of another version are removed, and other files are not in SHA256SUMS", () =>
  withRelease(async (folder, run) => {
    const old = ["kube-relay-1.2.2.tgz", "kube-relay_1.2.2_amd64.deb"];
    for (const name of [...old, "notes.txt"]) {
      await Deno.writeTextFile(`${folder}/dist/${name}`, "");
    }
    const output = await assertSuccess(run());
    assertEquals(await summed(folder), FILES);
    assertStringIncludes(output, "release: not a file of the release: notes.txt\n");
    const names = await namesIn(`${folder}/dist`);
    assertEquals(names.filter((name) => [...old, "notes.txt"].includes(name)), ["notes.txt"]);
  }));

Deno.test("another version in the chart or a manifest is named, and ends the release", () =>
  withRelease(async (folder, run) => {
    await Deno.writeTextFile(`${folder}/${CHART}`, "version: 1.2.3\nappVersion: 1.2.30\n");
    await Deno.writeTextFile(
      `${folder}/${MANIFEST}`,
      "  image: registry.example/kube-relay:1.2.2\n",
    );
    assertEquals(await run(), [
      1,
      "release: deno.json has version '1.2.3'; change these lines to it:\n" +
      `${CHART}:2:appVersion: 1.2.30\n${MANIFEST}:1:  image: registry.example/kube-relay:1.2.2\n`,
    ]);
  }));
