import { expect } from "vitest";
import { type Cases, failure } from "../cell.js";

export const gitCases: Cases = {
  "git clones, commits, branches and pushes to a repository inside": async ({ create, sdk }) => {
    const sandbox = await create();
    const { git } = sandbox;
    const origin = "/home/user/origin.git";
    const work = "/home/user/work";
    await git.init(origin, { bare: true, initialBranch: "main" });
    await git.clone(origin, { path: work });
    await git.configureUser("A. Tester", "tester@example.com");
    expect(await git.getConfig("user.name")).toBe("A. Tester");
    expect(await git.remoteGet(work, "origin")).toBe(origin);

    await sandbox.files.write(`${work}/README.md`, "# Größe\n");
    await sandbox.files.write(`${work}/with space.txt`, "x");
    expect(await git.status(work)).toMatchObject({ currentBranch: "main", untrackedCount: 2, hasStaged: false });
    await git.add(work);
    expect(await git.status(work)).toMatchObject({ stagedCount: 2, untrackedCount: 0 });
    await git.commit(work, 'first: it\'s a "start"');
    await git.push(work, { remote: "origin", branch: "main" });
    expect(await git.status(work)).toMatchObject({ isClean: true, upstream: "origin/main", ahead: 0 });

    await git.createBranch(work, "feature/one");
    await sandbox.files.write(`${work}/README.md`, "# Changed\n");
    expect((await git.status(work)).fileStatus).toMatchObject([
      { name: "README.md", status: "modified", staged: false },
    ]);
    await git.commit(work, "second", { allowEmpty: true, authorName: "Other", authorEmail: "other@example.com" });
    expect(await failure(git.push(work, { setUpstream: false }))).toBeInstanceOf(sdk.GitUpstreamError);
    await git.push(work, { remote: "origin", branch: "feature/one" });
    expect(await git.branches(work)).toEqual({ branches: ["feature/one", "main"], currentBranch: "feature/one" });
    await git.restore(work, { paths: ["README.md"] });
    await git.checkoutBranch(work, "main");
    await git.deleteBranch(work, "feature/one", { force: true });

    const second = "/home/user/second";
    await git.clone(`file://${origin}`, { path: second, branch: "feature/one", depth: 1 });
    const log = await sandbox.commands.run("git log --format='%an %s'", { cwd: second });
    expect(log.stdout).toBe("Other second\n");
    await git.checkoutBranch(work, "main");
    await git.pull(work, { remote: "origin", branch: "feature/one" });
    expect((await sandbox.commands.run("git log --format=%s", { cwd: work })).stdout).toBe(
      'second\nfirst: it\'s a "start"\n',
    );
    expect(await failure(git.clone("/home/user/nothing.git"))).toBeInstanceOf(sdk.CommandExitError);
  },
};
