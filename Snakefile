include: "workflow/Snakefile"


# An include does not take its default target along.
rule default:
    default_target: True
    input:
        rules.all.input,
