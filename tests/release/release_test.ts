/**
 * The files of `deno task release`: the same bytes from the same commit, the signature, what the tools of
 * distributions say about them, and the executable for another machine.
 *
 * @module
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { isMissing, program } from "../support/requirement.ts";
import {
  ARM64_LIBRARIES,
  RELEASE,
  RELEASE_REQUIREMENTS,
  REPOSITORY,
  runCommand,
} from "./package_root.ts";

const ignore = isMissing("tests/release/release_test.ts", [
  ...RELEASE_REQUIREMENTS,
  program("lintian"),
  program("qemu-aarch64-static"),
]);

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "release-" });
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test({
  name: "a clone of the commit makes the same bytes, and the signature shows a changed file",
  ignore,
  fn: () =>
    withFolder(async (folder) => {
      const clone = `${folder}/a clone`;
      await runCommand("git", ["clone", "-q", ".", clone]);
      const key = `${folder}/key`;
      await runCommand("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
      const steps = ["--skip", "image.sh"];
      await runCommand(`${clone}/deploy/release/release.sh`, steps, { RELEASE_SIGNING_KEY: key });
      const sums = await Deno.readTextFile(`${clone}/dist/SHA256SUMS`);
      assertMatch(sums, / kube-relay_\S+_arm64\.deb$/m);
      assertEquals(sums, await Deno.readTextFile(`${RELEASE}/SHA256SUMS`));

      const allowed = `releases@kube-relay ${await Deno.readTextFile(`${key}.pub`)}`;
      await Deno.writeTextFile(`${folder}/allowed_signers`, allowed);
      const check = `cd "$1"/dist && ssh-keygen -Y verify -f ../../allowed_signers ` +
        `-I releases@kube-relay -n kube-relay-release -s SHA256SUMS.sig <SHA256SUMS && ` +
        "sha256sum --quiet --check SHA256SUMS";
      assertMatch(await runCommand("sh", ["-c", check, "sh", clone]), /^Good "kube-relay-release"/);
      for (const file of ["SHA256SUMS", "kube-relay.8"]) {
        const before = await Deno.readTextFile(`${clone}/dist/${file}`);
        await Deno.writeTextFile(`${clone}/dist/${file}`, `${before}\n`);
        const checked = await new Deno.Command("sh", { args: ["-c", check, "sh", clone] }).output();
        assert(checked.code !== 0, `a changed ${file} passes the check`);
        await Deno.writeTextFile(`${clone}/dist/${file}`, before);
      }
    }),
});

Deno.test({
  name: "lintian finds no error in the packages for Debian",
  ignore,
  fn: () =>
    withFolder(async (folder) => {
      for (const architecture of ["amd64", "arm64"]) {
        // lintian reads the payload as a script, for minutes: only the script stays.
        await runCommand("sh", [
          "-ec",
          `dpkg-deb -R "$1"/kube-relay_*_$3.deb "$2/root"; cd "$2/root"
          sed -i '/^main "$@"; exit 1$/q' usr/bin/kube-relay
          find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums
          dpkg-deb --root-owner-group -Zgzip -z1 --build . "$2/kube-relay_1_$3.deb"; rm -r "$2/root"`,
          ...["sh", RELEASE, folder, architecture],
        ]);
        const args = ["--fail-on", "error", `${folder}/kube-relay_1_${architecture}.deb`];
        await runCommand("lintian", ["--allow-root", ...args]);
      }
    }),
});

Deno.test({
  name: "the executable for aarch64 runs",
  ignore,
  fn: () =>
    withFolder(async (folder) => {
      await runCommand("tar", ["-xf", ARM64_LIBRARIES, "-C", folder]);
      await Deno.mkdir(`${folder}/cache`, { mode: 0o700 });
      // The script calls qemu itself: only kernels from 6.7 on know programs of other machines in a
      // namespace, and elsewhere the whole machine would have to be changed.
      const script = String.raw`LC_ALL=C sed \
          's#^    exec \("$place/kube-relay" run\)#    exec /usr/bin/qemu-aarch64-static \1#' \
          "$2/kube-relay-aarch64" >"$1/kube-relay"
        chmod 0755 "$1/kube-relay"
        exec env -i PATH=/usr/bin:/bin QEMU_LD_PREFIX="$1" CACHE_DIRECTORY="$1/cache" \
          RUNTIME_DIRECTORY="$1/cache" "$1/kube-relay" --version`;
      const { version } = JSON.parse(await Deno.readTextFile(`${REPOSITORY}deno.json`));
      const said = await runCommand("sh", ["-ec", script, "sh", folder, RELEASE]);
      assert(said.startsWith(`kube-relay v${version} `), said);
    }),
});
